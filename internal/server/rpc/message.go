package rpc

import (
	"encoding/binary"
	"errors"
	"io"
	"math"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	grpcstatus "google.golang.org/grpc/status"
)

// prefixSize is how many bytes precede a message: a flag for compression, and the length.
const prefixSize = 5

// RecvMsg receives a message into v, which the codec knows. It returns io.EOF after the last one. Any other error ends the call.
func (s *stream) RecvMsg(v any) error {
	err := s.receive(v)
	if err != nil && err != io.EOF { //nolint:errorlint // receive's own
		s.finish(grpcstatus.Convert(err))
	}
	return err
}

func (s *stream) receive(v any) error {
	err := s.receiveOne(v)
	if err == io.EOF && !s.clientStreams() && !s.received { //nolint:errorlint // receiveOne's own
		return grpcstatus.Error(codes.Internal, "cardinality violation: received no request message from non-client-streaming RPC")
	}
	if err != nil {
		return err
	}
	s.received = true
	if s.clientStreams() {
		return nil
	}
	var header [prefixSize]byte
	err = s.ReadMessageHeader(header[:])
	if err == nil {
		err = grpcstatus.Error(codes.Internal, "cardinality violation: received multiple request messages for non-client-streaming RPC")
	}
	return wireError(ignoreEOF(err))
}

func ignoreEOF(err error) error {
	if err == io.EOF { //nolint:errorlint // ReadMessageHeader's own
		return nil
	}
	return err
}

func (s *stream) clientStreams() bool { return s.head.method.info.IsClientStream }

// wireError returns an error as grpc's RecvMsg does.
func wireError(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return grpcstatus.Error(codes.Internal, io.ErrUnexpectedEOF.Error())
	}
	return err
}

// receiveOne receives one message.
func (s *stream) receiveOne(v any) error {
	var header [prefixSize]byte
	if err := s.ReadMessageHeader(header[:]); err != nil {
		return wireError(err)
	}
	size, most := int64(binary.BigEndian.Uint32(header[1:])), s.c.srv.set.MaxReceive
	if size > int64(most) {
		return grpcstatus.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", size, most)
	}
	data, err := s.Read(int(size))
	if err == io.EOF { //nolint:errorlint // Read's own
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return wireError(err)
	}
	defer func() { data.Free() }()
	switch flag := header[0]; {
	case flag > 1:
		return grpcstatus.Errorf(codes.Internal, "grpc: received unexpected payload format %d", flag)
	case flag == 1 && s.inflater == nil:
		return grpcstatus.Error(codes.Internal, "grpc: compressed flag set with identity or empty encoding")
	case flag == 1:
		plain, err := Decompress(s.inflater, data, int64(most), nil)
		if err != nil {
			return err
		}
		data.Free()
		data = plain
	}
	if err := s.c.srv.set.Codec.Unmarshal(data, v); err != nil {
		return grpcstatus.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	return nil
}

// Decompress decompresses a message of at most most bytes. Errors of reading it for which own reports true are returned as they are, others
// as statuses. A nil own reports false.
func Decompress(with encoding.Compressor, data mem.BufferSlice, most int64, own func(error) bool) (mem.BufferSlice, error) {
	from := data.Reader()
	defer from.Close()
	z, err := with.Decompress(from)
	if err != nil {
		return nil, grpcstatus.Errorf(codes.Internal, "grpc: failed to decompress the message: %v", err)
	}
	if c, ok := z.(io.Closer); ok {
		defer c.Close()
	}
	out, err := mem.ReadAll(io.LimitReader(z, most+1), mem.DefaultBufferPool())
	switch {
	case err != nil && own != nil && own(err):
	case err != nil:
		err = grpcstatus.Errorf(codes.Internal, "grpc: failed to read decompressed data: %v", err)
	case int64(out.Len()) > most:
		err = grpcstatus.Errorf(codes.ResourceExhausted, "grpc: received message after decompression larger than max %d", most)
	default:
		return out, nil
	}
	out.Free()
	return nil, err
}

// SendMsg sends a message. It waits while much of the call waits for its client. An error ends the call.
func (s *stream) SendMsg(v any) error {
	err := s.send(v, false)
	if err != nil && err != io.EOF { //nolint:errorlint // as RecvMsg
		s.finish(grpcstatus.Convert(err))
	}
	return err
}

// sendLast sends the message of a unary call, which is written with the status.
func (s *stream) sendLast(v any) error { return s.send(v, true) }

func (s *stream) send(v any, last bool) error {
	data, err := s.c.srv.set.Codec.Marshal(v)
	if err != nil {
		return grpcstatus.Errorf(codes.Internal, "grpc: error while marshaling: %v", err)
	}
	defer func() { data.Free() }()
	if size := data.Len(); uint64(size) > math.MaxUint32 {
		return grpcstatus.Errorf(codes.ResourceExhausted, "grpc: message too large (%d bytes)", size)
	}
	o := outgoing{}
	if packed, ok, err := s.deflate(data); err != nil {
		return err
	} else if ok {
		data.Free()
		data, o.prefix[0] = packed, 1
	}
	size := data.Len()
	if size > s.c.srv.set.MaxSend {
		return grpcstatus.Errorf(codes.ResourceExhausted, "trying to send message larger than max (%d vs. %d)", size, s.c.srv.set.MaxSend)
	}
	binary.BigEndian.PutUint32(o.prefix[1:], uint32(size)) //nolint:gosec // bounded above
	o.data = data
	return s.queue(&o, last)
}

// deflate compresses a message, and reports false if the call's messages are not compressed, or if it is empty.
func (s *stream) deflate(data mem.BufferSlice) (out mem.BufferSlice, ok bool, err error) {
	if name := s.sendCompress; name != s.deflaterName {
		s.deflater, s.deflaterName = encoding.GetCompressor(name), name
	}
	if s.deflater == nil || data.Len() == 0 {
		return nil, false, nil
	}
	defer func() {
		if err != nil {
			out.Free()
			out, err = nil, grpcstatus.Errorf(codes.Internal, "grpc: error while compressing: %v", err)
		}
	}()
	z, err := s.deflater.Compress(mem.NewWriter(&out, mem.DefaultBufferPool()))
	if err != nil {
		return out, false, err
	}
	for _, b := range data {
		if _, err := z.Write(b.ReadOnlyData()); err != nil {
			return out, false, err
		}
	}
	return out, true, z.Close()
}
