package grpcapi

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/server/rpc"
)

// With a limit of bytes in flight, a call reads its messages itself, in pieces, from below grpc's RecvMsg, which returns a message when it is
// complete. Each piece is charged before it is read, as the body of an HTTP request is, so that a call that ends in the middle of a message
// holds nothing, and one for which there is no room is refused by itself.

const (
	// firstPiece is how many bytes of a message are read first, all of most messages. The next piece is as large as what has come, up to
	// maxPiece, which the slowest client sends in half the stall time.
	firstPiece = 16 << 10
	maxPiece   = 128 << 10
)

// transportStream is the part of grpc's stream below the messages that receives them, and ends the call. Read returns n bytes.
type transportStream interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
	RecvCompress() string
	WriteStatus(st *grpcstatus.Status) error
}

// incoming is a message that is received. The zero value is ready, also after release.
type incoming struct {
	late    lateMessage
	charge  infer.Charge // bytes in flight of the request
	refused error        // why a stream's message was not received; the stream goes on
	header  [5]byte      // grpc's: whether the message is compressed, and its length
}

// receiver receives the messages of a call. Only one goroutine may use it.
type receiver struct {
	svc    *service
	from   transportStream // nil if nothing is limited
	conn   *connection     // nil if from is
	client *infer.Client   // whose call it is; nil where clients are not told apart
	single bool            // the call has one message
	came   bool            // the first one
}

// receiverOf returns the receiver of a call.
//
// hot: no allocation.
func (s *service) receiverOf(ctx context.Context, single bool) receiver {
	r := receiver{svc: s, single: single}
	if s.set.Shares != nil {
		r.client = s.clientOf(ctx)
	}
	if l := connectionOf(ctx, s.set.InFlight); l != nil {
		if from, ok := grpc.ServerTransportStreamFromContext(ctx).(transportStream); ok {
			r.from, r.conn = from, l
		}
	}
	return r
}

// receive receives a message into v, a *message or what the codec knows, and charges it if it is a *message. Without a limit plain does. The
// error is io.EOF at the end of a stream. If a stream has no room for a message, its beginning is received and in.refused has the reason.
//
// hot: no allocation but those of the transport.
func (r *receiver) receive(in *incoming, v any, plain func(any) error) error {
	in.charge, in.refused = r.svc.set.InFlight.Charge(), nil
	m, isRequest := v.(*message)
	if isRequest {
		in.charge.For(r.client)
	}
	if r.from == nil {
		err := plain(v)
		if err == nil && isRequest {
			err = r.chargeAll(in, int64(m.data.Len()))
		}
		return err
	}
	if !r.came {
		r.conn.await(&in.late, r.from)
	}
	err := r.read(in, v, isRequest)
	if err == nil && isRequest && in.refused == nil {
		err = r.chargeAll(in, int64(m.data.Len())) // decompressed
	}
	r.conn.forget(&in.late)
	r.came = true
	return err
}

// chargeAll charges what is not charged yet of a message of n bytes.
func (r *receiver) chargeAll(in *incoming, n int64) error {
	have := in.charge.Bytes()
	if have > n {
		in.charge.Shrink(have - n)
	}
	return r.refuse(in, true, in.charge.Acquire(n-have))
}

// refuse has the error of a charge refuse a request of a stream, or else returns it.
func (r *receiver) refuse(in *incoming, isRequest bool, err error) error {
	if r.single || !isRequest {
		return err
	}
	in.refused = err
	return nil
}

// read is receive without the wait and without the charge of decompressed bytes.
func (r *receiver) read(in *incoming, v any, isRequest bool) error {
	err := r.from.ReadMessageHeader(in.header[:])
	if err == io.EOF && r.single { //nolint:errorlint // the transport's own
		return grpcstatus.Error(codes.Internal, "cardinality violation: received no request message from non-client-streaming RPC")
	}
	if err != nil {
		return transportError(err)
	}
	n := int(binary.BigEndian.Uint32(in.header[1:]))
	if most := r.svc.set.maxMessage(); n > most {
		return grpcstatus.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", n, most)
	}
	data, err := r.readPieces(in, n, isRequest)
	if err == nil {
		data, err = r.decompress(in, data, isRequest)
	}
	if err != nil {
		return err
	}
	err = r.svc.codec.Unmarshal(data, v)
	data.Free()
	if err != nil {
		return grpcstatus.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	if r.single {
		return r.readEnd(in)
	}
	return nil
}

// readPieces reads the n bytes of a message, or the first piece of one that is refused. Requests are charged, of other messages all but the
// first piece: calls that control the server and ask for its health work while the limit is reached.
func (r *receiver) readPieces(in *incoming, n int, isRequest bool) (data mem.BufferSlice, err error) {
	for have := 0; have < n; {
		piece := min(n-have, max(firstPiece, min(have, maxPiece)))
		if have > 0 && r.came {
			r.conn.await(&in.late, r.from)
		}
		if in.refused == nil && (isRequest || have > 0) {
			if err = r.refuse(in, isRequest, in.charge.Acquire(int64(piece))); err != nil {
				break
			}
		}
		part, fail := r.from.Read(piece)
		if fail == io.EOF { //nolint:errorlint // the transport's own
			fail = io.ErrUnexpectedEOF
		}
		if fail != nil {
			err = transportError(fail)
			break
		}
		switch {
		case have == 0:
			data = part
		case in.refused == nil:
			data = append(data, part...)
		default:
			part.Free()
			data = keepFirst(data)
			in.charge.Release()
		}
		have += piece
		in.late.received.Store(int64(have))
	}
	if err != nil {
		data.Free()
		return nil, err
	}
	return data, nil
}

// keepFirst frees all but the first piece of a message: the id is there.
func keepFirst(data mem.BufferSlice) mem.BufferSlice {
	n := 0
	for i, b := range data {
		if n += b.Len(); n >= firstPiece {
			data[i+1:].Free()
			return data[:i+1]
		}
	}
	return data
}

// readEnd reads the end of a call that has one message.
func (r *receiver) readEnd(in *incoming) error {
	err := r.from.ReadMessageHeader(in.header[:])
	if err == nil {
		return grpcstatus.Error(codes.Internal, "cardinality violation: received multiple request messages for non-client-streaming RPC")
	}
	if err == io.EOF { //nolint:errorlint // the transport's own
		return nil
	}
	return transportError(err)
}

// transportError returns an error of the transport as grpc's RecvMsg does.
func transportError(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return grpcstatus.Error(codes.Internal, io.ErrUnexpectedEOF.Error())
	}
	return err
}

// decompress returns a message decompressed, if it is not.
func (r *receiver) decompress(in *incoming, data mem.BufferSlice, isRequest bool) (mem.BufferSlice, error) {
	if in.header[0] == 0 {
		return data, nil
	}
	defer data.Free()
	if in.refused != nil {
		return nil, nil
	}
	name := r.from.RecvCompress()
	with := encoding.GetCompressor(name)
	switch {
	case in.header[0] > 1:
		return nil, grpcstatus.Errorf(codes.Internal, "grpc: received unexpected payload format %d", in.header[0])
	case name == "" || name == encoding.Identity:
		return nil, grpcstatus.Error(codes.Internal, "grpc: compressed flag set with identity or empty encoding")
	case with == nil:
		return nil, grpcstatus.Errorf(codes.Unimplemented, "grpc: Decompressor is not installed for grpc-encoding %q", name)
	}
	out, err := rpc.Decompress(with, data, int64(r.svc.set.maxMessage()), isFull)
	if isFull(err) {
		err = r.refuse(in, isRequest, err)
	}
	return out, err
}

// isFull reports whether there was no room for a decompressed message.
func isFull(err error) bool {
	return errors.Is(err, infer.ErrFull) || errors.Is(err, infer.ErrTooLarge)
}

// receiving returns a service whose calls receive their messages so.
func (s *service) receiving(desc *grpc.ServiceDesc) *grpc.ServiceDesc {
	d := *desc
	d.Methods = slices.Clone(d.Methods)
	for i := range d.Methods {
		m := &d.Methods[i]
		if m.MethodName == methodInfer {
			continue // it does so itself, without an allocation
		}
		handle := m.Handler
		m.Handler = func(srv any, ctx context.Context, receive func(any) error, with grpc.UnaryServerInterceptor) (any, error) {
			return handle(srv, ctx, func(v any) error {
				in, r := new(incoming), s.receiverOf(ctx, true)
				defer in.charge.Release()
				return r.control(ctx, in, v, receive)
			}, with)
		}
	}
	return &d
}

// control receives a message that is not an inference request.
func (r *receiver) control(ctx context.Context, in *incoming, v any, plain func(any) error) error {
	err := r.receive(in, v, plain)
	if err == nil || err == io.EOF { //nolint:errorlint // receive's own
		return err
	}
	return refusal(ctx, err)
}

// receivingStream is a stream that receives its messages so.
type receivingStream struct {
	grpc.ServerStream
	r receiver // only the receiving goroutine uses it
}

// RecvMsg implements grpc.ServerStream.
func (s *receivingStream) RecvMsg(v any) error {
	if m, ok := v.(*message); ok {
		return s.r.receive(&m.incoming, v, s.ServerStream.RecvMsg)
	}
	in := new(incoming)
	defer in.charge.Release()
	return s.r.control(s.Context(), in, v, s.ServerStream.RecvMsg)
}
