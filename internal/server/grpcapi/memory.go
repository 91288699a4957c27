package grpcapi

import (
	"context"

	"github.com/tutti-server/tutti/internal/shm"
	"github.com/tutti-server/tutti/proto/inference"
)

// SystemSharedMemoryStatus describes one registered region, or all.
func (s *service) SystemSharedMemoryStatus(
	_ context.Context, req *inference.SystemSharedMemoryStatusRequest,
) (*inference.SystemSharedMemoryStatusResponse, error) {
	list, err := s.set.Regions.Status(shm.System, req.GetName())
	if err != nil {
		return nil, wireError(err)
	}
	all := make(map[string]*inference.SystemSharedMemoryStatusResponse_RegionStatus, len(list))
	for _, r := range list {
		all[r.Name] = &inference.SystemSharedMemoryStatusResponse_RegionStatus{Name: r.Name, Key: r.Key, Offset: r.Offset, ByteSize: r.Size}
	}
	return &inference.SystemSharedMemoryStatusResponse{Regions: all}, nil
}

// SystemSharedMemoryRegister registers a client's shared memory under a name.
func (s *service) SystemSharedMemoryRegister(
	_ context.Context, req *inference.SystemSharedMemoryRegisterRequest,
) (*inference.SystemSharedMemoryRegisterResponse, error) {
	err := s.set.Regions.RegisterSystem(req.GetName(), req.GetKey(), req.GetOffset(), req.GetByteSize())
	if err != nil {
		return nil, wireError(err)
	}
	return &inference.SystemSharedMemoryRegisterResponse{}, nil
}

// SystemSharedMemoryUnregister unregisters one region, or all.
func (s *service) SystemSharedMemoryUnregister(
	_ context.Context, req *inference.SystemSharedMemoryUnregisterRequest,
) (*inference.SystemSharedMemoryUnregisterResponse, error) {
	if err := s.set.Regions.Unregister(shm.System, req.GetName()); err != nil {
		return nil, wireError(err)
	}
	return &inference.SystemSharedMemoryUnregisterResponse{}, nil
}

// CudaSharedMemoryStatus describes one registered region, or all.
func (s *service) CudaSharedMemoryStatus(
	_ context.Context, req *inference.CudaSharedMemoryStatusRequest,
) (*inference.CudaSharedMemoryStatusResponse, error) {
	list, err := s.set.Regions.Status(shm.CUDA, req.GetName())
	if err != nil {
		return nil, wireError(err)
	}
	all := make(map[string]*inference.CudaSharedMemoryStatusResponse_RegionStatus, len(list))
	for _, r := range list {
		all[r.Name] = &inference.CudaSharedMemoryStatusResponse_RegionStatus{Name: r.Name, DeviceId: uint64(r.Device), ByteSize: r.Size}
	}
	return &inference.CudaSharedMemoryStatusResponse{Regions: all}, nil
}

// CudaSharedMemoryRegister registers a client's device memory under a name.
func (s *service) CudaSharedMemoryRegister(
	_ context.Context, req *inference.CudaSharedMemoryRegisterRequest,
) (*inference.CudaSharedMemoryRegisterResponse, error) {
	err := s.set.Regions.RegisterCUDA(req.GetName(), req.GetRawHandle(), req.GetDeviceId(), req.GetByteSize())
	if err != nil {
		return nil, wireError(err)
	}
	return &inference.CudaSharedMemoryRegisterResponse{}, nil
}

// CudaSharedMemoryUnregister unregisters one region, or all.
func (s *service) CudaSharedMemoryUnregister(
	_ context.Context, req *inference.CudaSharedMemoryUnregisterRequest,
) (*inference.CudaSharedMemoryUnregisterResponse, error) {
	if err := s.set.Regions.Unregister(shm.CUDA, req.GetName()); err != nil {
		return nil, wireError(err)
	}
	return &inference.CudaSharedMemoryUnregisterResponse{}, nil
}
