// Package sim has the backend sim, which runs models of other backends at simulated devices (package simdev). It serves tests and
// experiments with the movement of tensors between devices; it makes nothing faster.
//
// --backend-config=sim,devices=N enables it with N devices. Other keys are latency_us and bandwidth_mb (the cost of a copy, which is
// only counted unless real=true), and memory_mb. A parameter of the model names the backend that executes it:
//
//	backend: "sim"
//	parameters { key: "sim.backend" value { string_value: "identity" } }
//
// Inputs are moved to the instance's device and outputs stay there, except BYTES. The model itself runs on the host, on copies that the
// simulated device does not count: they represent its kernels. Copies to the host use a pool that represents pinned memory.
package sim
