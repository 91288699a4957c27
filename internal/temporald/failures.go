package temporald

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// failures has why the last call failed.
type failures struct {
	last atomic.Pointer[error] // nil after a call that reached the server
}

// record is a grpc.UnaryClientInterceptor, which sees each attempt at a call.
func (f *failures) record(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, cc, o...)
	switch status.Code(err) {
	case codes.Unavailable, codes.Unauthenticated, codes.PermissionDenied:
		f.last.Store(&err)
	case codes.Canceled, codes.DeadlineExceeded: // neither shows that the server is there
	default:
		f.last.Store(nil)
	}
	return err
}

func (f *failures) err() error {
	if e := f.last.Load(); e != nil {
		return *e
	}
	return nil
}
