package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
)

const inferMethod = "/inference.GRPCInferenceService/ModelInfer"

// serialised is a codec that passes requests and responses as the bytes they already are.
type serialised struct{}

func (serialised) Name() string { return "proto" }

func (serialised) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("unexpected message %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

func (serialised) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("unexpected message %T", v)
	}
	*b = slices.Grow((*b)[:0], data.Len())[:data.Len()]
	data.CopyTo(*b)
	return nil
}

// caller is a gRPC client on a shared connection.
type caller struct {
	conn     *grpc.ClientConn
	messages [][]byte
	response []byte
}

var _ Client = (*caller)(nil)

// grpc opens n clients, Streams per connection.
func (g *Group) grpc(addr string, requests []Request, n int) error {
	if addr == "" {
		return errors.New("no address of gRPC is known")
	}
	messages, err := encoded(requests, (*Request).Proto)
	if err != nil {
		return err
	}
	var conn *grpc.ClientConn
	for i := range n {
		if i%Streams == 0 {
			conn, err = grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithDefaultCallOptions(grpc.ForceCodecV2(serialised{}), grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)))
			if err != nil {
				return err
			}
			g.close = append(g.close, conn.Close)
		}
		g.Clients = append(g.Clients, &caller{conn: conn, messages: messages})
	}
	return nil
}

// Do calls ModelInfer.
func (c *caller) Do(i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), responseTimeout)
	defer cancel()
	return c.conn.Invoke(ctx, inferMethod, &c.messages[i%len(c.messages)], &c.response)
}

// Outputs decodes the last response.
func (c *caller) Outputs() ([]Output, error) { return readProto(c.response) }

// Close does nothing: the group closes the connection.
func (*caller) Close() error { return nil }
