package grpcapi

import (
	"context"
	"path"
	"slices"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// Restriction asks for the metadata triton-grpc-protocol-<Key> to be Value before the
// methods of some protocols are answered.
type Restriction struct {
	// Protocols are those of Protocols.
	Protocols  []string
	Key, Value string
}

// headerPrefix is before the key in the metadata.
const headerPrefix = "triton-grpc-protocol-"

// Protocols are the names of what can be restricted.
func Protocols() []string {
	return []string{
		"health", "inference", "logging", "metadata", "model-config", "model-repository", "shared-memory", "statistics", "trace",
	}
}

// protocolOf returns the protocol that a method belongs to, empty for none.
func protocolOf(method string) string {
	switch method {
	case "ServerLive", "ServerReady", "ModelReady", "Check", "Watch":
		return "health"
	case "ServerMetadata", "ModelMetadata":
		return "metadata"
	case "ModelInfer", "ModelStreamInfer":
		return "inference"
	case "ModelConfig":
		return "model-config"
	case "ModelStatistics":
		return "statistics"
	case "RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload":
		return "model-repository"
	case "SystemSharedMemoryStatus", "SystemSharedMemoryRegister", "SystemSharedMemoryUnregister",
		"CudaSharedMemoryStatus", "CudaSharedMemoryRegister", "CudaSharedMemoryUnregister":
		return "shared-memory"
	case "TraceSetting":
		return "trace"
	case "LogSettings":
		return "logging"
	}
	return ""
}

// restrict refuses calls without their header before a byte of them is read.
func restrict(list []Restriction) tap.ServerInHandle {
	return func(ctx context.Context, call *tap.Info) (context.Context, error) {
		protocol := protocolOf(path.Base(call.FullMethodName))
		for i := range list {
			r := &list[i]
			if !slices.Contains(r.Protocols, protocol) || slices.Contains(call.Header[headerPrefix+r.Key], r.Value) {
				continue
			}
			return nil, grpcstatus.Error(codes.Unavailable, "This protocol is restricted, expecting header '"+headerPrefix+r.Key+"'")
		}
		return ctx, nil
	}
}
