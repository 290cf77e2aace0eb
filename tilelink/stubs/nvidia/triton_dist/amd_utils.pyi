# Written by python -m tilelink.stubs.write from the API data: do not edit.
from typing import Any
from triton_dist._types import other

class Lock(Any): ...
_AMDSMI_INITIALIZED = _HAS_AMDSMI = _LOCK = _check_rocm_smi_json = other
_ensure_amdsmi_initialized = _get_amdsmi_device_index = other
_get_bus_bw_gbps_a2a_rocm = _get_bus_bw_gbps_between = other
_get_bus_bw_gbps_between_amdsmi = _get_bus_bw_gbps_between_rocm = other
_get_current_gpu_clock_rate_in_khz_amdsmi = other
_get_current_gpu_clock_rate_in_khz_rocm = other
_get_gpu_performance_mode_amdsmi = _get_gpu_performance_mode_rocm = other
_get_gpu_uuid = _get_gpu_uuid_by_physical_device_id = other
_get_max_gpu_clock_rate_in_khz_amdsmi = other
_get_max_gpu_clock_rate_in_khz_rocm = _get_numa_node_amdsmi = other
_get_numa_node_rocm = _get_physical_gpu_uuid_rocm = other
_get_xgmi_max_speed_gbps_amdsmi = _get_xgmi_max_speed_gbps_rocm = other
_has_fullmesh_xgmi_amdsmi = _has_fullmesh_xgmi_rocm = other
_parse_rocm_shownodesbw_output_in_gbps = amdsmi = functools = other
get_current_gpu_clock_rate_in_khz = get_intranode_max_speed_gbps = other
get_max_gpu_clock_rate_in_khz = get_num_xcds_by_amdsmi = get_numa_node = other
get_pcie_link_max_speed_gbps = get_physical_device_count = other
get_uuid_by_physical_device_id = get_xgmi_max_speed_gbps = has_amdsmi = other
has_fullmesh_xgmi = hip = is_gpu_max_performance_mode = json = os = re = other
subprocess = sys = torch = torch_uuid_to_unique_id = warnings = other
