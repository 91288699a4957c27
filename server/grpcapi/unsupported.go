package grpcapi

import (
	"context"

	"google.golang.org/grpc"

	"tutti/core/status"
	"tutti/proto/inference"
)

// notBuilt answers for a method of the protocol that this server lacks.
func notBuilt(method string) error {
	return wireError(status.Errorf(status.Unsupported, "the %s method is not supported by this server", method))
}

// ModelStreamInfer is not built.
func (*service) ModelStreamInfer(grpc.BidiStreamingServer[inference.ModelInferRequest, inference.ModelStreamInferResponse]) error {
	return notBuilt("ModelStreamInfer")
}

// RepositoryIndex is not built.
func (*service) RepositoryIndex(context.Context, *inference.RepositoryIndexRequest) (*inference.RepositoryIndexResponse, error) {
	return nil, notBuilt("RepositoryIndex")
}

// RepositoryModelLoad is not built.
func (*service) RepositoryModelLoad(context.Context, *inference.RepositoryModelLoadRequest) (*inference.RepositoryModelLoadResponse, error) {
	return nil, notBuilt("RepositoryModelLoad")
}

// RepositoryModelUnload is not built.
func (*service) RepositoryModelUnload(context.Context, *inference.RepositoryModelUnloadRequest) (*inference.RepositoryModelUnloadResponse, error) {
	return nil, notBuilt("RepositoryModelUnload")
}

// SystemSharedMemoryStatus is not built.
func (*service) SystemSharedMemoryStatus(context.Context, *inference.SystemSharedMemoryStatusRequest) (*inference.SystemSharedMemoryStatusResponse, error) {
	return nil, notBuilt("SystemSharedMemoryStatus")
}

// SystemSharedMemoryRegister is not built.
func (*service) SystemSharedMemoryRegister(context.Context, *inference.SystemSharedMemoryRegisterRequest) (*inference.SystemSharedMemoryRegisterResponse, error) {
	return nil, notBuilt("SystemSharedMemoryRegister")
}

// SystemSharedMemoryUnregister is not built.
func (*service) SystemSharedMemoryUnregister(context.Context, *inference.SystemSharedMemoryUnregisterRequest) (*inference.SystemSharedMemoryUnregisterResponse, error) {
	return nil, notBuilt("SystemSharedMemoryUnregister")
}

// CudaSharedMemoryStatus is not built.
func (*service) CudaSharedMemoryStatus(context.Context, *inference.CudaSharedMemoryStatusRequest) (*inference.CudaSharedMemoryStatusResponse, error) {
	return nil, notBuilt("CudaSharedMemoryStatus")
}

// CudaSharedMemoryRegister is not built.
func (*service) CudaSharedMemoryRegister(context.Context, *inference.CudaSharedMemoryRegisterRequest) (*inference.CudaSharedMemoryRegisterResponse, error) {
	return nil, notBuilt("CudaSharedMemoryRegister")
}

// CudaSharedMemoryUnregister is not built.
func (*service) CudaSharedMemoryUnregister(context.Context, *inference.CudaSharedMemoryUnregisterRequest) (*inference.CudaSharedMemoryUnregisterResponse, error) {
	return nil, notBuilt("CudaSharedMemoryUnregister")
}

// TraceSetting is not built.
func (*service) TraceSetting(context.Context, *inference.TraceSettingRequest) (*inference.TraceSettingResponse, error) {
	return nil, notBuilt("TraceSetting")
}

// LogSettings is not built.
func (*service) LogSettings(context.Context, *inference.LogSettingsRequest) (*inference.LogSettingsResponse, error) {
	return nil, notBuilt("LogSettings")
}
