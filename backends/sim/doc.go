// Package sim holds the backend sim, which runs the models of other backends as if at
// a device: package simdev's, a device in software. It is for tests and for trying out
// how a graph's tensors travel when its models are at a device; it makes nothing faster.
//
// It is off until --backend-config=sim,devices=N says how many devices there are; other
// keys are latency_us and bandwidth_mb (what a copy costs, counted unless real=true
// makes it take that long) and memory_mb. A model says which backend it is of:
//
//	backend: "sim"
//	parameters { key: "sim.backend" value { string_value: "identity" } }
//
// Inputs come to the instance's device and outputs stay there, BYTES excepted. The
// model itself runs on the host, on copies that the simulated device does not count:
// they stand for its kernels. What goes to the host goes through a pool that stands for
// pinned memory.
package sim
