// Package faults makes the server's calls to the outside fail, in programs built with the tag faults. A seed decides which calls
// fail: the same seed fails the same calls of each point, counted from Set. Without the tag At is a constant, and compiles to nothing.
//
//	faults.go    the points
//	enabled.go   the decisions, with the tag
//	disabled.go  nothing, without it
//
// For example, the third file that is read by a server under Plan{Point: FileRead, Nth: 3} cannot be read.
package faults

// Point is a place where the server meets the outside.
type Point uint8

// The points.
const (
	FileRead     Point = iota // a file of a repository is opened
	FileWrite                 // a file of a cache or of traces is written
	PoolAlloc                 // a pool of tensors allocates
	SpawnWorker               // a process of a Python model starts
	WorkerMemory              // memory is made that a process of a Python model shares
	AttachShared              // a client's shared memory is opened
	BucketRead                // an object of a bucket is read
	CacheCall                 // Redis is called
	NetworkWrite              // a response is written to a connection
	NumPoints
)

// names are the points' names, for messages.
var names = [NumPoints]string{
	"file-read", "file-write", "pool-alloc", "spawn-worker", "worker-memory", "attach-shared", "bucket-read", "cache-call", "network-write",
}

// String returns the name of a point, for example "file-read".
func (p Point) String() string {
	if p < NumPoints {
		return names[p]
	}
	return "unknown"
}
