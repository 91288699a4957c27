package grpcapi

import (
	"context"
	"path"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/tutti-server/tutti/core/infer"
)

// headerPrefix precedes the key in the metadata.
const headerPrefix = "triton-grpc-protocol-"

// apiOf returns the category of a method.
func apiOf(method string) infer.API {
	switch method {
	case "ServerLive", "ServerReady", "ModelReady", "Check", "Watch":
		return infer.APIHealth
	case "ServerMetadata", "ModelMetadata":
		return infer.APIMetadata
	case methodInfer, methodStream:
		return infer.APIInference
	case "ModelConfig":
		return infer.APIModelConfig
	case "ModelStatistics":
		return infer.APIStatistics
	case "RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload":
		return infer.APIModelRepository
	case "SystemSharedMemoryStatus", "SystemSharedMemoryRegister", "SystemSharedMemoryUnregister",
		"CudaSharedMemoryStatus", "CudaSharedMemoryRegister", "CudaSharedMemoryUnregister":
		return infer.APISharedMemory
	case "TraceSetting":
		return infer.APITrace
	case "LogSettings":
		return infer.APILogging
	}
	return infer.APINone
}

// restrict rejects calls of restricted methods before a byte of them is read.
func restrict(list []infer.Restriction) tap.ServerInHandle {
	list = slices.Clone(list)
	for i := range list {
		list[i].Key = strings.ToLower(list[i].Key) // as metadata keys arrive
	}
	limited := infer.Restrict(list)
	return func(ctx context.Context, call *tap.Info) (context.Context, error) {
		r := limited.Of(apiOf(path.Base(call.FullMethodName)))
		if r == nil || slices.ContainsFunc(call.Header[headerPrefix+r.Key], r.Met) {
			return ctx, nil
		}
		return nil, grpcstatus.Error(codes.Unavailable, "This protocol is restricted, expecting header '"+headerPrefix+r.Key+"'")
	}
}
