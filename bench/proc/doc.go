// Package proc starts servers and measures the CPU time, the memory and the start time of a process and its
// children. It reads /proc, so it runs on Linux only.
//
//	process.go   starting, waiting until ready, stopping
//	tree.go      the processes that belong to a server
//	usage.go     CPU time and memory
//	pin.go       the CPUs of a process and its children
package proc
