package options_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/cache/redis"
	"github.com/tutti-server/tutti/internal/gpu"
	"github.com/tutti-server/tutti/internal/logs"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler/device"
)

// tritonFlags are the names of tritonserver's options.
const tritonFlags = `help id exit-timeout-secs model-store model-repository exit-on-error disable-auto-complete-config
strict-readiness model-control-mode repository-poll-secs load-model model-config-name model-load-thread-count
model-load-retry-count model-namespacing enable-peer-access allow-http http-address http-port reuse-http-port
http-header-forward-pattern http-thread-count http-max-input-size http-restricted-api allow-grpc grpc-address grpc-port
reuse-grpc-port grpc-header-forward-pattern grpc-infer-thread-count grpc-infer-allocation-pool-size
grpc-max-response-pool-size grpc-use-ssl grpc-use-ssl-mutual grpc-server-cert grpc-server-key grpc-root-cert
grpc-infer-response-compression-level grpc-keepalive-time grpc-keepalive-timeout grpc-keepalive-permit-without-calls
grpc-http2-max-pings-without-data grpc-http2-min-recv-ping-interval-without-data grpc-http2-max-ping-strikes
grpc-max-connection-age grpc-max-connection-age-grace grpc-restricted-protocol log-verbose log-info log-warning log-error
log-format log-file allow-sagemaker sagemaker-port sagemaker-safe-port-range sagemaker-thread-count allow-vertex-ai
vertex-ai-port vertex-ai-thread-count vertex-ai-default-model allow-metrics allow-gpu-metrics allow-cpu-metrics
metrics-address metrics-port metrics-interval-ms metrics-config trace-config cache-config cache-directory rate-limit
rate-limit-resource pinned-memory-pool-byte-size cuda-memory-pool-byte-size cuda-virtual-address-size
min-supported-compute-capability buffer-manager-thread-count host-policy model-load-gpu-limit allow-client-shm
backend-directory backend-config repoagent-directory strict-model-config response-cache-byte-size trace-file trace-level
trace-rate trace-count trace-log-frequency`

const repository = "--model-repository=models"

func TestFlagsAreTritons(t *testing.T) {
	t.Parallel()
	var got []string
	for _, f := range options.Flags() {
		if !f.Own {
			got = append(got, f.Name)
		}
	}
	want := strings.Fields(tritonFlags)
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestFlagsAreWhole checks that every flag has a help text, and that its documented default is the value of
// Default.
func TestFlagsAreWhole(t *testing.T) {
	t.Parallel()
	for _, f := range options.Flags() {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			if f.Group == "" || f.Help == "" || strings.HasSuffix(f.Help, ".") || (f.Class != options.Honoured) != (f.Why != "") {
				t.Errorf("incomplete: %+v", f)
			}
			if f.Default == "" || f.Class == options.Refused {
				return
			}
			o, err := options.Parse([]string{repository, "--" + f.Name, f.Default}, nil)
			if err != nil {
				t.Fatal(err)
			}
			bare, err := options.Parse([]string{repository}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if noticed := f.Class == options.WithoutEffect || f.Instead != ""; noticed != (len(o.Notices) == 1) {
				t.Errorf("notices: %v", o.Notices)
			}
			o.Notices = nil
			if diff := cmp.Diff(bare, o); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseOptions(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args []string
		want func(o *options.Options)
	}{
		"nothing": {nil, func(o *options.Options) { o.Repositories = nil }},
		"both forms, the alias, and each folder once": {
			[]string{"--model-store", "b", "--model-repository=b", "--model-repository", "c"},
			func(o *options.Options) { o.Repositories = []string{"b", "c"} },
		},
		"the last value stands": {[]string{"--id=a", "--id", "b"}, func(o *options.Options) { o.Repositories, o.ID = nil, "b" }},
		"a shortened name":      {[]string{"--model-rep=m"}, func(o *options.Options) { o.Repositories = []string{"m"} }},
		"switches": {
			[]string{repository, "--allow-http=off", "--allow-grpc=0", "--strict-readiness=False", "--reuse-grpc-port=ON", "--allow-client-shm=1"},
			func(o *options.Options) {
				o.HTTP.Enabled, o.GRPC.Enabled, o.StrictReadiness, o.GRPC.ReusePort, o.ClientSHM = false, false, false, true, true
			},
		},
		"switches without a value": {
			[]string{repository, "--reuse-grpc-port", "--allow-client-shm"},
			func(o *options.Options) { o.GRPC.ReusePort, o.ClientSHM = true, true },
		},
		"addresses": {
			[]string{repository, "--http-address=::1", "--http-port=1", "--grpc-port=0"},
			func(o *options.Options) {
				o.HTTP.Address, o.HTTP.Port, o.GRPC.Port, o.Metrics.Address = "::1", 1, 0, "::1"
			},
		},
		"ports of what is not served": {
			[]string{repository, "--http-port=-47", "--allow-http=0", "--grpc-port=70000", "--allow-grpc=0"},
			func(o *options.Options) {
				o.HTTP.Port, o.HTTP.Enabled, o.GRPC.Port, o.GRPC.Enabled = -47, false, 70000, false
			},
		},
		"models": {
			[]string{
				repository, "--model-control-mode=EXPLICIT", "--load-model=a", "--load-model", "b", "--model-config-name=gpu",
				"--model-load-thread-count=2", "--model-load-retry-count=3", "--disable-auto-complete-config",
				"--model-namespacing=true", "--model-cache-directory=/cache",
			},
			func(o *options.Options) {
				o.ControlMode, o.LoadModels, o.ModelConfigName = "explicit", []string{"a", "b"}, "gpu"
				o.LoadThreads, o.LoadRetries, o.DisableAutoComplete = 2, 3, true
				o.Namespacing, o.ModelCache = true, "/cache"
			},
		},
		"polling": {
			[]string{repository, "--model-control-mode=poll", "--repository-poll-secs=2"},
			func(o *options.Options) { o.ControlMode, o.PollInterval = "poll", 2*time.Second },
		},
		"metrics": {
			[]string{
				repository, "--allow-gpu-metrics=false", "--allow-cpu-metrics=false", "--metrics-interval-ms=500", "--metrics-config=model,counter_latencies=false",
				"--metrics-config", `global,summary_quantiles="0.5:0.1,0.9:0.01"`, "--metrics-config=summary_latencies=true", "--metrics-config=histogram_latencies=true",
			},
			func(o *options.Options) {
				o.Metrics.Export = telemetry.ExportOptions{
					NoCounterLatencies: true, Summaries: true, Histograms: true, Interval: 500 * time.Millisecond,
					Quantiles: []telemetry.Quantile{{Rank: 0.5, Error: 0.1}, {Rank: 0.9, Error: 0.01}},
				}
			},
		},
		"quantiles with something behind the numbers": {
			[]string{repository, "--metrics-config=summary_quantiles=0.1:0.0.1,0.7 :0.01"},
			func(o *options.Options) {
				o.Metrics.Export.Quantiles = []telemetry.Quantile{{Rank: 0.1}, {Rank: 0.7, Error: 0.01}}
				o.Notices = []options.Notice{{
					Option: "--metrics-config summary_quantiles",
					Text:   "'0.1:0.0.1' is read as 0.1:0, as Triton does; expected QUANTILE:ERROR",
				}}
			},
		},
		"a cache too small for any response": {
			[]string{repository, "--cache-config=local,size=200"},
			func(o *options.Options) { o.Cache.Name, o.Cache.Local = "local", 200 },
		},
		"cache": {
			[]string{repository, "--cache-config=local,size=4096"},
			func(o *options.Options) { o.Cache.Name, o.Cache.Local = "local", 4096 },
		},
		"cache with a setting that it does not have": {
			[]string{repository, "--cache-config=local,size=200", "--cache-config=local,shards=4"},
			func(o *options.Options) {
				o.Cache.Name, o.Cache.Local = "local", 200
				o.Notices = []options.Notice{{Option: "--cache-config local,shards", Text: "accepted without effect: the cache does not read this key, expected one of size."}}
			},
		},
		"what models may ask for": {
			[]string{repository, "--strict-parameters=true", "--gpu-fallback=CPU"},
			func(o *options.Options) { o.StrictParameters, o.GPUFallback = true, "cpu" },
		},
		"deprecated cache": {
			[]string{repository, "--response-cache-byte-size=4096"},
			func(o *options.Options) {
				o.Cache.Name, o.Cache.Local = "local", 4096
				o.Notices = []options.Notice{{Option: "--response-cache-byte-size", Text: "deprecated, use --cache-config local,size=BYTES"}}
			},
		},
		"Redis": {
			[]string{repository, "--cache-config=redis,host=::1", "--cache-config=redis,port=6379", "--cache-config=redis,socket_timeout=5", "--cache-config=redis,ttl=9"},
			func(o *options.Options) {
				o.Cache.Name = "redis"
				o.Cache.Redis = redis.Config{Address: "[::1]:6379", ConnectTimeout: time.Second, SocketTimeout: 5 * time.Millisecond, TTL: 9 * time.Second}
			},
		},
		"backends": {
			[]string{repository, "--backend-config=a,k=v,w=x", "--backend-config=auto-complete-config=false", "--backend-config", ",k=2"},
			func(o *options.Options) {
				o.BackendConfig = map[string]map[string]string{"a": {"k": "v,w=x"}, "": {"k": "2", "auto-complete-config": "false"}}
				o.DisableAutoComplete = true
			},
		},
		"gRPC": {
			[]string{
				repository, "--grpc-use-ssl-mutual=true", "--grpc-server-cert=c", "--grpc-server-key=k", "--grpc-root-cert=r",
				"--grpc-infer-response-compression-level=HIGH", "--grpc-keepalive-time=5", "--grpc-max-connection-age=7",
				"--grpc-max-message-size=1048576",
			},
			func(o *options.Options) {
				o.GRPC.TLS = options.TLS{Enabled: true, Mutual: true, ServerCert: "c", ServerKey: "k", RootCert: "r"}
				o.GRPC.Compression, o.GRPC.KeepaliveTime, o.GRPC.MaxAge = "high", 5*time.Millisecond, 7*time.Millisecond
				o.GRPC.MaxMessage = 1 << 20
			},
		},
		"restrictions": {
			[]string{repository, "--http-restricted-api=health,trace:k=v=w", "--http-restricted-api=metadata:k2=v", "--grpc-restricted-protocol=health:a=b"},
			func(o *options.Options) {
				o.HTTP.Restricted = []infer.Restriction{
					{APIs: []infer.API{infer.APIHealth, infer.APITrace}, Key: "k", Value: "v=w"}, {APIs: []infer.API{infer.APIMetadata}, Key: "k2", Value: "v"},
				}
				o.GRPC.Restricted = []infer.Restriction{{APIs: []infer.API{infer.APIHealth}, Key: "a", Value: "b"}}
			},
		},
		"log": {
			[]string{repository, "--log-verbose=true", "--log-info=false", "--log-format=json", "--log-file=f"},
			func(o *options.Options) {
				o.Log = logs.Settings{File: "f", Warning: true, Error: true, Verbose: 1, Format: logs.JSON}
			},
		},
		"traces": {
			[]string{
				repository, "--trace-config=level=timestamps", "--trace-config=rate=5", "--trace-config=count=9", "--trace-config=mode=opentelemetry",
				"--trace-config=triton,file=/tmp/t", "--trace-config=triton,log-frequency=4", "--trace-config=opentelemetry,url=http://h/p?a=b",
			},
			func(o *options.Options) {
				o.Trace = options.Trace{
					Mode: "opentelemetry", Levels: []string{"TIMESTAMPS"}, Rate: 5, Count: 9, File: "/tmp/t", LogFrequency: 4,
					OpenTelemetry: [][2]string{{"url", "http://h/p?a=b"}},
				}
			},
		},
		"devices": {
			[]string{
				repository, "--cuda-driver=/lib/other.so", "--pinned-memory-pool-byte-size=0", "--cuda-memory-pool-byte-size=0:67108864", "--cuda-memory-pool-byte-size", "1:5",
				"--min-supported-compute-capability=7.5", "--enable-peer-access=false", "--model-load-gpu-limit=0:0.8", "--model-memory=lru",
			},
			func(o *options.Options) {
				o.GPU = gpu.Settings{Driver: "/lib/other.so", Pools: map[int]int64{0: 64 << 20, 1: 5}, Capability: 7.5, NoPeers: true}
				o.GPULoadLimits = map[int]float64{0: 0.8}
				o.ModelMemory = options.MemoryLRU
			},
		},
		"limits": {
			[]string{
				repository, "--rate-limit=execution_count", "--rate-limit-resource=R:4", "--rate-limit-resource", "S:2:1",
				"--cpu-threads=3", "--max-inflight-bytes=4096", "--max-device-executions=2", "--host-policy=cpu,cpu-cores=0-1", "--host-policy=cpu,numa-node=0", "--host-policy=gpu_0,x=y",
			},
			func(o *options.Options) {
				o.Limits = options.Limits{RateLimit: true, Executions: 2, Threads: 3, InFlight: new(int64(4096)), Resources: []device.Limit{
					{Name: "R", Count: 4, Device: device.EveryDevice}, {Name: "S", Count: 2, Device: 1},
				}}
				o.HostPolicies = map[string]map[string]string{"cpu": {"cpu-cores": "0-1", "numa-node": "0"}, "gpu_0": {"x": "y"}}
			},
		},
		"a limit of nothing": {
			[]string{repository, "--rate-limit-resource=R:4"},
			func(o *options.Options) {
				o.Limits.Resources = []device.Limit{{Name: "R", Count: 4, Device: device.EveryDevice}}
				o.Notices = []options.Notice{{Option: "--rate-limit-resource", Text: "without effect: --rate-limit is off"}}
			},
		},
		"a trace level OFF": {
			[]string{repository, "--trace-config=level=tensors", "--trace-config=level=off"},
			func(o *options.Options) { o.Trace.Levels = []string{"OFF"} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := options.Parse(tt.args, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := options.Default()
			want.Repositories, want.Metrics.Address = []string{"models"}, "0.0.0.0"
			tt.want(&want)
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseOptionsRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range [][2]string{
		{"--htp-port=1", "unrecognized option '--htp-port', did you mean '--http-port'?"},
		{"--dance", "unrecognized option '--dance'"},
		{"--http-port", "option '--http-port' requires an argument"},
		{"--help=me", "option '--help' doesn't allow an argument"},
		{"--grpc-ma=1", "option '--grpc-ma' is ambiguous, it may be --grpc-max-connection-age, --grpc-max-connection-age-grace, --grpc-max-message-size, --grpc-max-response-pool-size"},
		{"-id=x", "Unexpected argument: -id=x, did you mean '--id'?"},
		{"models", "Unexpected argument: models"},
		{"../options", "Unexpected argument: ../options, did you mean '--model-repository ../options'?"},
		{"-- x", "Unexpected argument: x"},
		{"--http-port=x", "Bad option: \"--http-port\".\nInvalid option value. Got x"},
		{"--http-port=-1", "Bad option: \"--http-port\".\nProvided option value is out of bound. Got -1, expected 0 to 65535"},
		{"--id=a --http-port=1e9", "Invalid option value. Got 1e9"},
		{"--exit-timeout-secs=99999999999999999999", "Provided option value is out of bound. Got 99999999999999999999"},
		{"--allow-http=maybe", "Bad option: \"--allow-http\".\ninvalid value for bool option: maybe"},
		{"--http-max-input-size=0", "Error: --http-max-input-size must be greater than 0. Got 0"},
		{"--watchdog-factor=0.5", "invalid argument for --watchdog-factor: '0.5', expected 0 or a number from 1 to 1000000"},
		{"--max-inflight-bytes=-1", "Provided option value is out of bound. Got -1, expected 0 to 9223372036854775807"},
		{"--grpc-max-message-size=0", "Provided option value is out of bound. Got 0, expected 1 to 2147483647"},
		{"--model-control-mode=now", "invalid argument for --model-control-mode: 'now', expected one of: none, poll, explicit"},
		{"--load-model=a", "Error: Use of '--load-model' requires setting '--model-control-mode=explicit' as well."},
		{"--model-control-mode=explicit --load-model=* --load-model=a", "Wildcard model name '*' must be the ONLY startup model if specified at all. (--load-model)"},
		{"--model-control-mode=poll --repository-poll-secs=0", "--repository-poll-secs must be greater than 0 with --model-control-mode=poll"},
		{"--rate-limit=fast", "invalid argument for --rate-limit: 'fast'"},
		{"--model-config-name=../x", "invalid argument for --model-config-name: '../x'"},
		{"--log-format=xml", "invalid argument for --log-format: 'xml', expected one of: default, ISO8601, json"},
		{"--grpc-infer-thread-count=1", "invalid argument for --grpc_infer_thread_count. Must be in the range 2 to 128."},
		{"--grpc-infer-response-compression-level=9", "invalid argument for --grpc-infer-response-compression-level: '9'"},
		{"--grpc-use-ssl=true", "--grpc-use-ssl requires setting --grpc-server-cert and --grpc-server-key as well"},
		{"--http-use-ssl-mutual=1 --http-server-cert=c --http-server-key=k", "--http-use-ssl-mutual requires setting --http-root-cert as well"},
		{"--http-header-forward-pattern=(", "invalid header forward pattern"},
		{"--http-restricted-api=health", "--http-restricted-api option format is '<config name>:<setting>=<value>'. Got health"},
		{"--http-restricted-api=dance:k=v", "unknown restricted api 'dance'"},
		{"--http-restricted-api=health,health:k=v", "restricted api 'health' can not be specified in multiple config groups"},
		{"--grpc-restricted-protocol=trace:k=v --grpc-restricted-protocol=trace:l=w", "restricted protocol 'trace' can not be specified in multiple config groups"},
		{"--backend-config=a,b", "--backend-config option format is '<backend name>,<setting>=<value>'. Got a,b"},
		{"--backend-config=auto-complete-config=perhaps", "invalid value for bool option: perhaps"},
		{"--trace-config=,rate=1", "No trace mode specified."},
		{"--trace-config=rate", "--trace-config option format is '<trace mode>,<setting>=<value>'. Got rate"},
		{"--trace-config=speed=1", "unknown setting 'speed' of --trace-config"},
		{"--trace-config=triton,speed=1", "unknown setting 'triton,speed' of --trace-config"},
		{"--trace-config=jaeger,speed=1", `invalid value for trace mode option: jaeger. Available options are "triton" and "opentelemetry"`},
		{"--trace-level=all", "invalid value for trace level option: all"},
		{"--metrics-config=histogram_latencies=maybe", "invalid value for bool option: maybe"},
		{"--metrics-config=gpu,counter_latencies=false", "unknown domain 'gpu' of --metrics-config, expected one of: global, model"},
		{"--metrics-config=summary_quantiles=0.5", "--metrics-config summary_quantiles has '0.5', expected QUANTILE:ERROR"},
		{"--metrics-config=summary_quantiles=0.5:0.1,NaN:1", "--metrics-config summary_quantiles has 'NaN:1'"},
		{"--metrics-interval-ms=0", "Provided option value is out of bound. Got 0"},
		{"--metrics-config=speed=1", "unknown setting 'speed' of --metrics-config"},
		{"--metrics-config=speed", "--metrics-config option format is '<setting>=<value>' or '<domain>,<setting>=<value>'. Got speed"},
		{"--cache-config=size=1", "No cache specified."},
		{"--cache-config=local,size=0", "--cache-config local,size=0, expected a number of bytes from 1 on"},
		{"--cache-config=local,size=1GB", "--cache-config local,size=1GB, expected a number of bytes from 1 on"},
		{"--cache-config=local,sizes=4096", `--cache-config local has no size, expected local,size=BYTES; unknown setting 'sizes' of --cache-config local, expected one of: size. Did you mean "size"?`},
		{"--strict-parameters=true --cache-config=local,sizes=4096", "unknown setting 'sizes' of --cache-config local, expected one of: size. Did you mean \"size\"?"},
		{"--cache-config=lru,size=4096", "unsupported: --cache-config lru, libtritoncache_lru.so is not loaded, expected one of: local, redis"},
		{"--cache-config=redis,host=h", "--cache-config redis has no port, expected redis,port=VALUE"},
		{"--cache-config=redis,host=h --cache-config=redis,port=99999", "--cache-config redis,port=99999: expected a number from 1 to 65535"},
		{"--cache-config=redis,hosts=h", "--cache-config redis has no host, expected redis,host=VALUE"},
		{"--strict-parameters=true --cache-config=redis,hosts=h", "unknown setting 'hosts' of --cache-config redis, expected one of: connect_timeout, db, host"},
		{"--cache-config=redis,host=h --cache-config=redis,port=1 --cache-config=local,size=4096", "found multiple cache configurations, but only a single cache is currently supported: --cache-config names local and redis"},
		{"--response-cache-byte-size=-5", "--response-cache-byte-size"},
		{"--cache-config=local,size=1 --response-cache-byte-size=1", "Error: Incompatible flags --response-cache-byte-size and --cache-config both provided."},
		{"--rate-limit-resource=a", "--rate-limit-resource option format is"},
		{"--rate-limit-resource=a:x", "Invalid option value. Got x"},
		{"--rate-limit-resource=a:-1", "Provided option value is out of bound. Got -1"},
		{"--rate-limit-resource=a:1:x", "Invalid option value. Got x"},
		{"--rate-limit-resource=:1", "--rate-limit-resource option format is"},
		{"--rate-limit-resource=a:1:2:3", "--rate-limit-resource option format is"},
		{"--cpu-threads=-1", "Provided option value is out of bound. Got -1"},
		{"--host-policy=cpu,cpu-cores=1", "host policy setting 'cpu-cores' format is '<lower_cpu_core_id>-<upper_cpu_core_id>'. Got 1"},
		{"--host-policy=cpu,numa-node=x", "Can't parse 'x' to integer"},
		{"--host-policy=a", "--host-policy option format is '<policy name>,<setting>=<value>'. Got a"},
		{"--cuda-memory-pool-byte-size=x:1", "Invalid"},
		{"--pinned-memory-pool-byte-size=-1", "-1"},
		{"--min-supported-compute-capability=new", "Invalid option value. Got new"},
		{"--cuda-memory-pool-byte-size=1", "Cannot parse option arguments due to missing delimiter."},
		{"--model-load-gpu-limit=0:x", "Invalid option value. Got x"},
		{"--model-load-gpu-limit=0:1.5", "expects limit fraction to be in range [0.0, 1.0], got 1.5"},
		{"--model-load-gpu-limit=0:-0.1", "expects limit fraction to be in range [0.0, 1.0], got -0.1"},
		{"--allow-sagemaker=true", "unsupported: --allow-sagemaker, SageMaker is not built"},
		{"--sagemaker-port=1", "unsupported: --sagemaker-port, SageMaker is not built"},
		{"--allow-vertex-ai=true", "unsupported: --allow-vertex-ai, Vertex AI is not built"},
		{"--metrics-port=65536", "Bad option: \"--metrics-port\".\nProvided option value is out of bound. Got 65536, expected 0 to 65535"},
		{"--http-port=7 --grpc-port=7", "The server cannot listen to HTTP requests and GRPC requests at the same address and port 0.0.0.0:7"},
		{"--config=nowhere.yaml", "cannot read config file 'nowhere.yaml'"},
	} {
		arg, want := tt[0], tt[1]
		t.Run(arg, func(t *testing.T) {
			t.Parallel()
			_, err := options.Parse(strings.Fields(arg), nil)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, expected %s", err, want)
			}
		})
	}
}

func TestParseOptionsHelp(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"--help", "-h", "--hel"} {
		if _, err := options.Parse([]string{arg}, nil); !errors.Is(err, flag.ErrHelp) {
			t.Errorf("%s: %v", arg, err)
		}
	}
}

// TestSources checks that the command line takes precedence over the environment, the environment over the file,
// and the file over the default.
func TestSources(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "# every kind of value\nid: file\nhttp-port: 1\ngrpc-port: 2\nmetrics-port: 3\nallow-http: false\n"+
		"model-repository: [a, b]\nbackend-config:\n  - x,k=v\n  - y,k=v\ndisable-auto-complete-config: true\n")
	environ := []string{
		"TUTTI_CONFIG=" + file, "TUTTI_HTTP_PORT=11", "TUTTI_GRPC_PORT=12", "TUTTI_MODEL_STORE=c,d\ne", "TUTTI_ID=", "TUTTI_SERVICE_HOST=10.0.0.1",
		"TUTTI_BACKEND_CONFIG=z,k=v,w\nz,l=1\n", "TUTTI_HTP_PORT=5", "TRITON_SERVER_ESCAPE_LOG_MESSAGES=0", "TRITONSERVER_DELAY_SCHEDULER=3",
		"TRITONSERVER_BACKLOG_DELAY_SCHEDULER=2",
	}
	got, err := options.Parse([]string{"--http-port=21"}, environ)
	if err != nil {
		t.Fatal(err)
	}
	want := options.Default()
	want.ID, want.HTTP.Port, want.GRPC.Port, want.Metrics.Port, want.HTTP.Enabled = "file", 21, 12, 3, false
	want.Repositories = []string{"c", "d", "e"}
	want.BackendConfig = map[string]map[string]string{"z": {"k": "v,w", "l": "1"}}
	want.BacklogDelayScheduler = 2
	want.DisableAutoComplete, want.Metrics.Address, want.Log.Raw = true, "0.0.0.0", true
	want.DelayScheduler = 3
	want.Notices = []options.Notice{
		{Option: "TUTTI_HTP_PORT", Text: "no option has this environment variable, did you mean 'TUTTI_HTTP_PORT'?"},
	}
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSourcesRefuse(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ environ, file, want string }{
		"variable":        {"TUTTI_HTTP_PORT=tcp://10.0.0.1:80", "", "Bad option: \"--http-port\" (environment variable TUTTI_HTTP_PORT).\nInvalid option value. Got tcp://"},
		"hook":            {"TRITONSERVER_DELAY_SCHEDULER=-1", "", "environment variable TRITONSERVER_DELAY_SCHEDULER is '-1', expected a number of requests"},
		"backlog hook":    {"TRITONSERVER_BACKLOG_DELAY_SCHEDULER=x", "", "environment variable TRITONSERVER_BACKLOG_DELAY_SCHEDULER is 'x', expected a number of requests"},
		"Vertex AI":       {"AIP_MODE=PREDICTION", "", "unsupported: environment variable AIP_MODE=PREDICTION"},
		"unknown key":     {"", "id: a\nhttp-prt: 1\n", "line 2: there is no option 'http-prt', did you mean 'http-port'?"},
		"value":           {"", "\n\nhttp-port: many\n", "line 3).\nInvalid option value. Got many"},
		"repeated key":    {"", "id: a\nid: b\n", "already"},
		"list":            {"", "id: [a, b]\n", "line 1: option 'id' takes one value, found a list"},
		"mapping":         {"", "id: {a: b}\n", "line 1: option 'id' expects a text, a number or a boolean"},
		"alias":           {"", "id: &x a\nload-model: [*x]\n", "line 2: option 'load-model' expects a text"},
		"null":            {"", "id:\n", "line 1: option 'id' expects a text"},
		"own name":        {"", "config: other.yaml\n", "option 'config' belongs on the command line"},
		"two documents":   {"", "id: a\n---\nid: b\n", "holds more than one document"},
		"no mapping":      {"", "- a\n", "line 1: expected a mapping of option names to values"},
		"no YAML":         {"", "id: [\n", "yaml: "},
		"a refused thing": {"", "allow-sagemaker: true\n", "unsupported: --allow-sagemaker"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string(nil)
			if tt.file != "" {
				args = []string{"--config", writeFile(t, tt.file)}
			}
			_, err := options.Parse(args, []string{tt.environ})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, expected %s", err, tt.want)
			}
		})
	}
}

func TestConfigFileIsOrdinary(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ file, want string }{
		"folder": {t.TempDir(), "expected a file, found d"},
		"large":  {writeFile(t, strings.Repeat("#", 1<<20+1)), "expected 1048576 at most"},
	} {
		if _, err := options.Parse([]string{"--config", tt.file}, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, expected %s", name, err, tt.want)
		}
	}
	for _, text := range []string{"", "# nothing\n", "null\n"} {
		if _, err := options.Parse([]string{"--config", writeFile(t, text)}, nil); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzConfigFile(f *testing.F) {
	for _, text := range []string{"id: a\n", "http-port: [1]\n", "a: &a [*a]\n", "? {b: c}\n: d\n", "<<: {id: x}\n", "id: !!binary aGk=\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o, err := options.Parse([]string{"--config", writeFile(t, text)}, nil)
		if err == nil && (o.HTTP.Port < 0 || o.HTTP.MaxInput <= 0) {
			t.Errorf("out of range: %+v", o)
		}
	})
}

func writeFile(tb testing.TB, text string) string {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "serve.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return file
}

// TestForwardPatterns checks that the patterns of both protocols ignore case unless they begin with (?-i).
func TestForwardPatterns(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]bool{"MY_HEADER.*": true, "(?-i)MY_HEADER.*": false, "(?-i)my_.*": true, "": false} {
		o, err := options.Parse([]string{"--model-repository=m", "--http-header-forward-pattern=" + pattern, "--grpc-header-forward-pattern=" + pattern}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, compile := range map[string]func() (*regexp.Regexp, error){"HTTP": o.HTTP.Forward, "gRPC": o.GRPC.Forward} {
			got, err := compile()
			if err != nil || (got == nil) != (pattern == "") || got != nil && got.MatchString("my_header_1") != want {
				t.Errorf("%s, pattern '%s': got %v, error %v, want a match: %v", name, pattern, got, err, want)
			}
		}
	}
}
