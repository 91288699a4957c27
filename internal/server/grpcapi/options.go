package grpcapi

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/tap"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/server/rpc"
)

const (
	// maxStreams is how many calls of one connection may be open at a time. Each has at least a goroutine and its headers, 10 kB, before
	// its message has come. Clients wait with further ones.
	maxStreams = 1000
	// maxHeaders bounds the headers of a call, far above what clients send.
	maxHeaders = 64 << 10
	// idleTime is how long a connection without calls stays open, as at the HTTP port. Clients connect again by themselves.
	idleTime = 10 * time.Minute
	// window is how many bytes of a message a client may send before they are read: 80 MB/s at a round trip of 50 ms. Of a fixed size,
	// because grpc measures how large it should be with a ping and a window update for nearly every small message. A remote step of one
	// connection costs a tenth less CPU without them.
	window = 4 << 20
)

// options converts the settings into grpc's options. Only the size of a message limits the size of tensors.
func options(set *Settings) []grpc.ServerOption {
	list := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec(set.InFlight)),
		grpc.MaxRecvMsgSize(set.maxMessage()),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(2 * window),
		grpc.KeepaliveParams(keepaliveOf(set.Keepalive)),
		grpc.KeepaliveEnforcementPolicy(set.Pings),
		// Without these a goroutine starts with each request, whose stack grows to the depth of a run: 15 % of the CPU of a
		// small one. A request that finds them busy gets a goroutine of its own.
		grpc.NumStreamWorkers(uint32(max(16, 4*runtime.GOMAXPROCS(0)))),
	}
	if admits := tapOf(set); admits != nil {
		list = append(list, grpc.InTapHandle(admits))
	}
	if secured := credentialsOf(set); secured != nil {
		list = append(list, grpc.Creds(secured))
	}
	compression.use(set.Compression, set.InFlight)
	return list
}

// transportSettings converts the settings into those of package rpc, with the same effects as options.
func (s *service) transportSettings() rpc.Settings {
	set := &s.set
	compression.use(set.Compression, set.InFlight)
	var log *slog.Logger
	if set.Log != nil {
		log = set.Log.Logger()
	}
	return rpc.Settings{
		Codec: s.codec, MaxReceive: set.maxMessage(), MaxSend: math.MaxInt32, MaxHeaders: maxHeaders, MaxStreams: maxStreams,
		Window: window, ConnWindow: 2 * window,
		Keepalive: keepaliveOf(set.Keepalive), Pings: set.Pings, Credentials: credentialsOf(set), Tap: tapOf(set),
		Unary: s.interceptUnary, Stream: s.interceptStream, Short: isShort, Log: log,
	}
}

// isShort reports whether calls of a method mostly return soon.
func isShort(method string) bool {
	api := methodAPIs[path.Base(method)]
	return api == infer.APIHealth || api == infer.APIInference
}

// tapOf returns what refuses calls before they are read, nil for nothing.
func tapOf(set *Settings) tap.ServerInHandle {
	if len(set.Restricted) > 0 || set.Guard.Required() {
		return admit(set)
	}
	return nil
}

// credentialsOf returns the handshake of connections, nil for none.
func credentialsOf(set *Settings) credentials.TransportCredentials {
	var secured credentials.TransportCredentials
	if set.TLS != nil {
		secured = credentials.NewTLS(set.TLS)
	}
	return countConnections(secured, set.InFlight, set.StallTimeout)
}

// maxMessage returns the most bytes of a message, before and after decompression.
func (set *Settings) maxMessage() int {
	most := min(set.MaxMessage, math.MaxInt32)
	if most <= 0 {
		most = math.MaxInt32
	}
	if limit := set.InFlight.Limit(); limit > 0 {
		most = int(min(int64(most), limit))
	}
	return most
}

// keepaliveOf bounds how long connections are idle.
func keepaliveOf(p keepalive.ServerParameters) keepalive.ServerParameters {
	p.MaxConnectionIdle = cmp.Or(p.MaxConnectionIdle, idleTime)
	return p
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
		if !known || r == nil {
			return ctx, nil
		}
		// A key that is there twice is refused unless both values are right: another party in front may have read the first only.
		values := call.Header[headerPrefix+r.Key]
		if len(values) > 0 && !slices.ContainsFunc(values, func(v string) bool { return !r.Met(v) }) {
			return ctx, nil
		}
		return nil, wireError(status.Reasonf(status.PermissionDenied, "This protocol is restricted, expecting header '%s'", headerPrefix+r.Key))
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
