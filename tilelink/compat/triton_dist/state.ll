; One word in each module: the address of the table of its process, written when the module is loaded.
; Functions of kernels read ranks and peers from the table, so that all ranks share one compiled kernel.
target triple = "nvptx64-nvidia-cuda"

@tilelink_triton_dist_state_d = addrspace(1) externally_initialized global i64 0, align 8

define i64 @tilelink_triton_dist_state() #0 {
  %address = load i64, ptr addrspace(1) @tilelink_triton_dist_state_d, align 8
  ret i64 %address
}

attributes #0 = { alwaysinline nounwind }
