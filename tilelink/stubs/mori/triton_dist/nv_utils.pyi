# Written by python -m tilelink.stubs.write from the API data: do not edit.
from typing import Any
from triton_dist._types import other

class Lock(Any): ...
class NVSHMEMHelper(Any): ...
class Path(Any): ...
class Template(Any): ...
_HAS_PYNVML = _LOCK = _PYNVML_INITIALIZED = _get_active_nvlinks_pynvml = other
_get_gpu_numa_node = _get_gpu_performance_mode_nvsmi = other
_get_gpu_performance_mode_pynvml = _get_numa_node_pynvml = other
_get_nvlink_max_speed_gbps_nvsmi = _get_nvlink_max_speed_gbps_pynvml = other
_get_nvml_gpu_uuid = _get_pcie_link_max_speed_gbps_nvsmi = other
_get_pcie_link_max_speed_gbps_pynvml = _get_physical_gpu_uuid_nvsmi = other
_get_physical_gpu_uuid_pynvml = _get_pynvml_device_id = other
_parse_nvml_field_value = _path_to_binary = calculate_pcie_bandwidth_gbps = other
cuda = ensure_nvml_initialized = functools = other
get_current_gpu_clock_rate_in_khz = get_device_name = other
get_intranode_max_speed_gbps = get_max_gpu_clock_rate_in_khz = other
get_numa_node = get_nvcc = get_nvlink = get_nvlink_adjacency_matrix = other
get_nvlink_max_speed_gbps = get_pcie_link_max_speed_gbps = other
get_physical_device_count = get_physical_gpu_uuid = gpu_uuid_string = other
has_fullmesh_nvlink = has_fullmesh_nvlink_pynvml = other
is_gpu_max_performance_mode = nvsmi = os = pynvml = re = subprocess = sysconfig = other
tempfile = torch = warnings = with_pynvml = other
