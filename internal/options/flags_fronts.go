package options

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-server/tutti/core/infer"
)

// endpointFlags returns the flags that every protocol has.
func endpointFlags(name, title, address string, number int, field func(*Options) *Endpoint) []Flag {
	return []Flag{
		{Name: "allow-" + name, Arg: argBool, Default: yes, Help: "Serve " + title, set: boolean(func(o *Options) *bool { return &field(o).Enabled })},
		{Name: name + "-address", Arg: argAddress, Default: address, Help: "Address that " + title + " listens on", set: text(func(o *Options) *string { return &field(o).Address })},
		{
			Name: name + "-port", Arg: argPort, Default: strconv.Itoa(number), Help: "Port that " + title + " listens on; 0 selects a free port",
			set: portNumber(func(o *Options) *int { return &field(o).Port }),
		},
	}
}

func reuseFlag(name, title string, field func(*Options) *Endpoint) Flag {
	return Flag{
		Name: "reuse-" + name + "-port", Arg: argBool, Default: no, Help: "Share the port of " + title + " with other servers on this machine",
		set: boolean(func(o *Options) *bool { return &field(o).ReusePort }),
	}
}

// tlsFlags returns the flags of encrypted connections. own marks flags that Triton lacks.
func tlsFlags(name, title string, own bool, field func(*Options) *TLS) []Flag {
	return []Flag{
		{Name: name + "-use-ssl", Arg: argBool, Default: no, Own: own, Help: "Encrypt " + title + " with TLS", set: boolean(func(o *Options) *bool { return &field(o).Enabled })},
		{
			Name: name + "-use-ssl-mutual", Arg: argBool, Default: no, Own: own, Help: "Encrypt " + title + " with TLS and require client certificates",
			set: boolean(func(o *Options) *bool { return &field(o).Mutual }),
		},
		{Name: name + "-server-cert", Arg: argFile, Own: own, Help: "PEM file of the server's certificate, read again when it changes", set: text(func(o *Options) *string { return &field(o).ServerCert })},
		{Name: name + "-server-key", Arg: argFile, Own: own, Help: "PEM file of the server's key", set: text(func(o *Options) *string { return &field(o).ServerKey })},
		{Name: name + "-root-cert", Arg: argFile, Own: own, Help: "PEM file of the authority that signs clients' certificates", set: text(func(o *Options) *string { return &field(o).RootCert })},
	}
}

func httpFlags() []Flag {
	endpoint := func(o *Options) *Endpoint { return &o.HTTP.Endpoint }
	list := endpointFlags("http", "HTTP", defaultAddress, defaultHTTPPort, endpoint)
	list = append(list,
		reuseFlag("http", "HTTP", endpoint),
		Flag{
			Name: "http-header-forward-pattern", Arg: argPattern, Help: "Regular expression of the headers that become request parameters, in any case unless it begins with (?-i)",
			set: pattern(func(o *Options) *string { return &o.HTTP.ForwardPattern }),
		},
		Flag{Name: "http-max-input-size", Arg: argBytes, Default: "67108864", Help: "Largest request", set: maxInput},
		Flag{
			Name: "http-fast-path", Arg: argBool, Default: yes, Own: true,
			Help: "Serve plain HTTP/1.1 requests without Go's net/http, and call the sockets of HTTP and gRPC directly",
			set:  boolean(func(o *Options) *bool { return &o.HTTP.FastPath }),
		},
		Flag{
			Name: "http-restricted-api", Arg: "api,...:key=value", Many: true,
			Help: "Restrict parts of the API to clients that send the header KEY: VALUE; the parts are " + strings.Join(infer.APINames(), ", "),
			set:  restriction(func(o *Options) *[]Restriction { return &o.HTTP.Restricted }, "http-restricted-api", "api"),
		})
	return grouped(groupHTTP, append(list, tlsFlags("http", "HTTP", true, func(o *Options) *TLS { return &o.HTTP.TLS })...)...)
}

func maxInput(o *Options, value string) error {
	n, err := parseInt(value, -1<<63, 1<<63-1)
	if err == nil && n <= 0 {
		err = fmt.Errorf("Error: --http-max-input-size must be greater than 0. Got %d", n) //nolint:staticcheck // Triton's text
	}
	o.HTTP.MaxInput = n
	return err
}

func maxMessage(o *Options, value string) error {
	n, err := parseInt(value, 1, math.MaxInt32)
	o.GRPC.MaxMessage = int(n)
	return err
}

func grpcFlags() []Flag {
	endpoint := func(o *Options) *Endpoint { return &o.GRPC.Endpoint }
	list := endpointFlags("grpc", "gRPC", defaultAddress, defaultGRPCPort, endpoint)
	list = append(list,
		reuseFlag("grpc", "gRPC", endpoint),
		Flag{
			Name: "grpc-header-forward-pattern", Arg: argPattern, Help: "Regular expression of the metadata that become request parameters, in any case unless it begins with (?-i)",
			set: pattern(func(o *Options) *string { return &o.GRPC.ForwardPattern }),
		},
		Flag{
			Name: "grpc-restricted-protocol", Arg: "protocol,...:key=value", Many: true,
			Help: "Restrict parts of the protocol to clients that send the metadata triton-grpc-protocol-KEY: VALUE",
			set:  restriction(func(o *Options) *[]Restriction { return &o.GRPC.Restricted }, "grpc-restricted-protocol", "protocol"),
		})
	list = append(list, tlsFlags("grpc", "gRPC", false, func(o *Options) *TLS { return &o.GRPC.TLS })...)
	return grouped(groupGRPC, append(list, connectionFlags()...)...)
}

func connectionFlags() []Flag {
	return []Flag{
		{
			Name: "grpc-infer-response-compression-level", Arg: "level", Default: "none", Help: "Compression of responses: none, low, medium or high",
			set: choice(func(o *Options) *string { return &o.GRPC.Compression }, "grpc-infer-response-compression-level", "none", "low", "medium", "high"),
		},
		{
			Name: "grpc-keepalive-time", Arg: argMillis, Default: "7200000", Help: "Time after which an idle connection is pinged",
			set: duration(func(o *Options) *time.Duration { return &o.GRPC.KeepaliveTime }, time.Millisecond, 1),
		},
		{
			Name: "grpc-keepalive-timeout", Arg: argMillis, Default: "20000", Help: "Longest wait for the response to a ping",
			set: duration(func(o *Options) *time.Duration { return &o.GRPC.KeepaliveTimeout }, time.Millisecond, 1),
		},
		{
			Name: "grpc-keepalive-permit-without-calls", Arg: argBool, Default: no, Help: "Allow clients to ping while no call is open",
			set: boolean(func(o *Options) *bool { return &o.GRPC.PermitWithoutCalls }),
		},
		{
			Name: "grpc-http2-min-recv-ping-interval-without-data", Arg: argMillis, Default: "300000", Help: "Shortest time between two pings of a client",
			set: duration(func(o *Options) *time.Duration { return &o.GRPC.MinPingInterval }, time.Millisecond, 0),
		},
		{
			Name: "grpc-max-connection-age", Arg: argMillis, Help: "Time after which a connection is closed in order; never by default",
			set: duration(func(o *Options) *time.Duration { return &o.GRPC.MaxAge }, time.Millisecond, 0),
		},
		{
			Name: "grpc-max-connection-age-grace", Arg: argMillis, Help: "Time after that until open calls are cut off; never by default",
			set: duration(func(o *Options) *time.Duration { return &o.GRPC.MaxAgeGrace }, time.Millisecond, 0),
		},
		{
			Name: "grpc-max-message-size", Arg: argBytes, Default: "2147483647", Own: true,
			Help: "Largest message, before and after decompression", set: maxMessage,
		},
	}
}

func memoryFlags() []Flag {
	return grouped(groupMemory, Flag{
		Name: "allow-client-shm", Arg: argBool, Default: no, Help: "Allow clients to register shared memory of this machine for their tensors",
		set: boolean(func(o *Options) *bool { return &o.ClientSHM }),
	})
}

// deviceFlags returns Triton's flags of GPUs, which have no effect here.
func deviceFlags() []Flag {
	const noDevice = "models run on the CPU only"
	return inert(groupDevices,
		Flag{Name: "pinned-memory-pool-byte-size", Arg: argBytes, Default: "268435456", Help: "Size of the pool of pinned memory", Why: noDevice, set: anyInteger},
		Flag{Name: "cuda-memory-pool-byte-size", Arg: "device:bytes", Default: "", Many: true, Help: "Size of a GPU's memory pool", Why: noDevice, set: pairOf("cuda-memory-pool-byte-size")},
		Flag{Name: "cuda-virtual-address-size", Arg: "device:bytes", Many: true, Help: "Size of a GPU's virtual address range", Why: noDevice, set: pairOf("cuda-virtual-address-size")},
		Flag{Name: "min-supported-compute-capability", Arg: argNumber, Default: "6.0", Help: "Lowest compute capability of GPUs that are used", Why: noDevice, set: anyFraction},
		Flag{Name: "enable-peer-access", Arg: argBool, Default: yes, Help: "Allow GPUs to access each other's memory", Why: noDevice, set: anyBool},
		Flag{Name: "model-load-gpu-limit", Arg: "device:fraction", Many: true, Help: "Used fraction of a GPU's memory above which no model is loaded", Why: noDevice, set: fractionOf("model-load-gpu-limit")},
	)
}
