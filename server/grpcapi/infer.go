package grpcapi

import (
	"context"

	"tutti/core/infer"
	"tutti/core/status"
	"tutti/proto/inference"
)

// ModelInfer answers one inference request.
func (s *service) ModelInfer(ctx context.Context, msg *inference.ModelInferRequest) (*inference.ModelInferResponse, error) {
	version, err := infer.ParseVersion(msg.GetModelVersion())
	if err != nil {
		return nil, wireError(err)
	}
	req := infer.NewRequest()
	req.Model, req.Version, req.ID = msg.GetModelName(), version, msg.GetId()
	d := decoder{req: req, msg: msg, alloc: s.set.Alloc}
	if err := d.decode(); err != nil {
		req.Release()
		return nil, wireError(s.refuse(msg.GetModelName(), version, err))
	}
	call := infer.NewCall()
	s.set.Infer.Submit(ctx, req, call)
	resp, err := call.Wait()
	if err == nil && resp == nil {
		err = status.Errorf(status.Internal, "received an unexpected null response")
	}
	if err != nil {
		return nil, wireError(err)
	}
	defer resp.Release()
	return answer(resp), nil
}

// refuse returns why a request cannot be decoded, unless its model cannot be asked
// at all, which clients expect to be told first.
func (s *service) refuse(model string, version int64, err error) error {
	if unknown := s.set.Catalog.ModelReady(model, version); unknown != nil {
		return unknown
	}
	return err
}
