package grpcapi

import (
	"compress/gzip"
	"compress/zlib"
	"context"
	"fmt"
	"io"
	"math"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	grpcgzip "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/tutti-server/tutti/core/infer"
)

// Compression is the level of response compression, one of package gzip; 0 for none.
type Compression int

var compressions = map[string]Compression{
	"none": gzip.NoCompression, "low": gzip.BestSpeed, "medium": gzip.DefaultCompression, "high": gzip.BestCompression,
}

// ParseCompression parses a level: none, low, medium or high.
func ParseCompression(s string) (Compression, error) {
	c, ok := compressions[s]
	if !ok {
		return 0, fmt.Errorf("invalid compression level '%s', expected none, low, medium or high", s)
	}
	return c, nil
}

// options converts the settings into grpc's options. Only the size of a message limits the size of tensors.
func options(set *Settings) []grpc.ServerOption {
	most := min(set.MaxMessage, math.MaxInt32)
	if most <= 0 {
		most = math.MaxInt32
	}
	if limit := set.InFlight.Limit(); limit > 0 {
		most = int(min(int64(most), limit))
	}
	list := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec(set.InFlight)),
		grpc.MaxRecvMsgSize(most),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxHeaderListSize(64 << 10), // far above what clients send
		grpc.KeepaliveParams(set.Keepalive),
		grpc.KeepaliveEnforcementPolicy(set.Pings),
		grpc.RPCDecompressor(inflater{max: most}), //nolint:staticcheck // the other way is a table of the whole process
		// Without these a goroutine starts with each request, whose stack grows to the depth of a run: 15 % of the CPU of a
		// small one. A request that finds them busy gets a goroutine of its own.
		grpc.NumStreamWorkers(uint32(max(16, 4*runtime.GOMAXPROCS(0)))),
	}
	if len(set.Restricted) > 0 {
		list = append(list, grpc.InTapHandle(restrict(set.Restricted)))
	}
	var secured credentials.TransportCredentials
	if set.TLS != nil {
		secured = credentials.NewTLS(set.TLS)
	}
	if secured = countConnections(secured, set.InFlight, set.StallTimeout); secured != nil {
		list = append(list, grpc.Creds(secured))
	}
	if set.Compression != gzip.NoCompression {
		gzipLevel.Lock()
		defer gzipLevel.Unlock()
		_ = grpcgzip.SetLevel(int(set.Compression)) // all of these are valid
	}
	return list
}

// gzipLevel guards the level of grpc's gzip, which is global to the process: the last server counts.
var gzipLevel sync.Mutex

// inflater decompresses deflate messages, in the zlib format that clients use.
type inflater struct{ max int }

// Type returns the name of the compression on the wire.
func (inflater) Type() string { return "deflate" }

// Do reads at most one byte more than a message may have. grpc then rejects it.
func (i inflater) Do(r io.Reader) ([]byte, error) {
	z, err := zlib.NewReader(r)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	return io.ReadAll(io.LimitReader(z, int64(i.max)+1))
}

// headerPrefix precedes the key in the metadata.
const headerPrefix = "triton-grpc-protocol-"

// methodAPIs has the category of each method.
var methodAPIs = map[string]infer.API{
	"ServerLive": infer.APIHealth, "ServerReady": infer.APIHealth, "ModelReady": infer.APIHealth,
	"Check": infer.APIHealth, "Watch": infer.APIHealth, "ServerMetadata": infer.APIMetadata, "ModelMetadata": infer.APIMetadata,
	methodInfer: infer.APIInference, methodStream: infer.APIInference,
	"ModelConfig": infer.APIModelConfig, "ModelStatistics": infer.APIStatistics,
	"RepositoryIndex": infer.APIModelRepository, "RepositoryModelLoad": infer.APIModelRepository, "RepositoryModelUnload": infer.APIModelRepository,
	"SystemSharedMemoryStatus": infer.APISharedMemory, "CudaSharedMemoryStatus": infer.APISharedMemory,
	"SystemSharedMemoryRegister": infer.APISharedMemory, "CudaSharedMemoryRegister": infer.APISharedMemory,
	"SystemSharedMemoryUnregister": infer.APISharedMemory, "CudaSharedMemoryUnregister": infer.APISharedMemory,
	"TraceSetting": infer.APITrace, "LogSettings": infer.APILogging,
}

// restrict rejects calls of restricted methods before a byte of them is read.
func restrict(list []infer.Restriction) tap.ServerInHandle {
	list = slices.Clone(list)
	for i := range list {
		list[i].Key = strings.ToLower(list[i].Key) // as metadata keys arrive
	}
	limited := infer.Restrict(list)
	return func(ctx context.Context, call *tap.Info) (context.Context, error) {
		api, known := methodAPIs[path.Base(call.FullMethodName)]
		r := limited.Of(api)
		if !known || r == nil || slices.ContainsFunc(call.Header[headerPrefix+r.Key], r.Met) {
			return ctx, nil
		}
		return nil, grpcstatus.Error(codes.Unavailable, "This protocol is restricted, expecting header '"+headerPrefix+r.Key+"'")
	}
}

// codec is grpc's proto codec, except for messages with tensors: requests stay in the transport's buffers for
// decoder, and responses pass the memory of their tensors on.
type codec struct {
	encoding.CodecV2
	inFlight *infer.InFlight
}

func newCodec(f *infer.InFlight) codec { return codec{encoding.GetCodecV2(proto.Name), f} }

// Unmarshal retains data if v is an inference request.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(*message); ok {
		m.keep(data)
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// Marshal encodes and releases an inference response.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*response); ok {
		return r.marshal(c.inFlight), nil
	}
	return c.CodecV2.Marshal(v)
}
