// Package shm keeps the shared-memory regions that clients register, so that
// a request can name a part of one where it would carry a tensor's bytes.
//
// A region is a POSIX shared-memory object that the client made and may change,
// shorten or delete at any time. It is therefore never mapped: touching a page that
// the client has cut off would end the process. Every access is a pread or pwrite on
// the region's descriptor, and fails with an error when the memory is gone.
//
//   - registry.go: registering, listing and forgetting regions
//   - window.go: the part of a region that a request uses
//   - file.go: the POSIX objects behind system regions
package shm
