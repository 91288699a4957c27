// Package proc starts servers and says what they take: the CPU time, the memory and the time until they are ready of a
// process and all that it started. It reads /proc, so it is for Linux.
//
//	process.go   starting, waiting until ready, stopping
//	tree.go      which processes belong to one
//	usage.go     CPU time and memory
//	pin.go       which CPUs a process and its children run on
package proc
