package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tutti-server/tutti/bench/proc"
	"github.com/tutti-server/tutti/internal/load"
)

// gpuBench holds the settings of the measurements on a GPU.
type gpuBench struct {
	models, kind string
	span         time.Duration
	args         string
}

func (g *gpuBench) flags(fs *flag.FlagSet) {
	fs.StringVar(&g.models, "gpu-models", "bin/gpu-models", "the `folder` with the models that deploy/gpu-kit/models.py wrote")
	fs.StringVar(&g.kind, "gpu-kind", "KIND_GPU", "the `kind` of the models' instances; KIND_CPU tries the bench on a machine without a GPU")
	fs.DurationVar(&g.span, "gpu-time", 3*time.Second, "the `time` of each measurement")
	fs.StringVar(&g.args, "gpu-args", "", "more `options` of the server, separated by blanks")
}

// gpuCase is a comparison of two repositories, or of two loads of one.
type gpuCase struct {
	name     string
	ours     gpuSide
	other    gpuSide
	least    float64
	requests []load.Request
}

// gpuSide is a repository under a number of clients.
type gpuSide struct {
	files   map[string]string // by path in the repository; the content, or "@" and the name of a file of the models
	model   string
	clients int
}

// gpu compares ensembles on a GPU: three models in a row with host copies in between and without, an image pipeline with its native
// steps on the GPU and on the CPU, and one client with ten. It prints the busy share of the GPU, and the time to be ready.
func (b *bench) gpu() error {
	g := b.gpus
	cases, err := g.cases()
	if err != nil {
		return err
	}
	var failed error
	for i := range cases {
		if err := b.gpuCompare(&cases[i]); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	if g.kind != "KIND_CPU" { // a CPU would take minutes
		if err := b.gpuSaturate(&cases[0]); err != nil {
			fmt.Fprintf(b.table, "busy share of the GPU, 32 clients\tnot measured: %s\t\t\t\n", oneLine(err))
			failed = errors.Join(failed, err)
		}
	}
	return errors.Join(b.table.Flush(), failed)
}

// gpuCompare prints the row of one comparison, also when it cannot be measured. The error says that, or that the ratio is below its limit.
func (b *bench) gpuCompare(c *gpuCase) error {
	var ratios, with, without []float64
	for range b.rounds {
		a, err := b.gpuRun(&c.ours, c.requests)
		var o float64
		if err == nil {
			o, err = b.gpuRun(&c.other, c.requests)
		}
		if err != nil {
			fmt.Fprintf(b.table, "%s\tnot measured: %s\t\t(at least %.2f)\t\n", c.name, oneLine(err), c.least)
			return errors.Join(fmt.Errorf("%s: %w", c.name, err), b.table.Flush())
		}
		with, without, ratios = append(with, a), append(without, o), append(ratios, a/o)
	}
	word, err := "reached", error(nil)
	if median(ratios) < c.least {
		word, err = "missed", fmt.Errorf("%s: the ratio is below its limit", c.name)
	}
	fmt.Fprintf(b.table, "%s\t%.1f/s\tagainst %.1f/s\tratio %.2f (at least %.2f)\t%s\n", c.name, median(with), median(without), median(ratios), c.least, word)
	return errors.Join(err, b.table.Flush())
}

// oneLine returns an error's text for a row of the table.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// cases returns the comparisons.
func (g *gpuBench) cases() ([]gpuCase, error) {
	if _, err := os.Stat(filepath.Join(g.models, "head.pt")); err != nil {
		return nil, fmt.Errorf("%w; write the models with deploy/gpu-kit/models.py", err)
	}
	photo, err := photograph(1600, 1200)
	if err != nil {
		return nil, err
	}
	resident, copied := g.chain(false), g.chain(true)
	pipeline := func(kind string) gpuSide {
		group := "instance_group { kind: " + kind + " }\n"
		return gpuSide{model: "classify", clients: 8, files: map[string]string{
			"decode/config.pbtxt": "backend: \"native\" max_batch_size: 8\n" + group + param("step", "decode_resize") + param("preset", "resnet50"),
			"decode/1/keep":       "",
			"cnn/config.pbtxt":    g.model("[ 3, 224, 224 ]", "scores", "[ 1000 ]"),
			"cnn/1/model.pt":      "@classify.pt",
			"top/config.pbtxt":    "backend: \"native\" max_batch_size: 8\n" + group + param("step", "top_k") + param("k", "5"),
			"top/1/keep":          "",
			"classify/config.pbtxt": ensemble("classify", tensorPort("input", "IMAGE", "TYPE_STRING", "[ 1 ]")+tensorPort("output", "values", "TYPE_FP32", "[ 5 ]")+tensorPort("output", "indices", "TYPE_INT32", "[ 5 ]"),
				mapped("decode", "IMAGE", "IMAGE", "image", "image"), mapped("cnn", "x", "image", "scores", "scores"), mapped("top", "scores", "scores", "values", "values", "indices", "indices")),
			"classify/1/keep": "",
		}}
	}
	one, ten := resident, resident
	one.clients, ten.clients = 1, 10
	values := make([]float32, 8*3*56*56)
	r := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // the same input in every run is wanted
	for i := range values {
		values[i] = r.Float32()
	}
	batch := []load.Request{{Model: "chain", Inputs: []load.Tensor{load.Floats("x", []int64{8, 3, 56, 56}, values)}, Outputs: []string{"y"}}}
	single := []load.Request{{Model: "chain", Inputs: []load.Tensor{load.Floats("x", []int64{1, 3, 56, 56}, values[:3*56*56])}, Outputs: []string{"y"}}}
	picture := []load.Request{{Model: "classify", Inputs: []load.Tensor{load.Bytes("IMAGE", []int64{1, 1}, photo)}, Outputs: []string{"values", "indices"}}}
	images, host := pipeline("KIND_AUTO"), pipeline("KIND_CPU")
	return []gpuCase{
		{"three models in a row, batch 8: resident against copied through the host", resident, copied, 1.3, batch},
		{"JPEG to top-5: native steps on the GPU against the CPU", images, host, 1.5, picture},
		{"three models in a row: 10 clients against 1", ten, one, 2.5, single},
	}, nil
}

// photograph returns a JPEG file with large and small structure.
func photograph(w, h int) ([]byte, error) {
	r := rand.New(rand.NewPCG(2, 2)) //nolint:gosec // the same picture in every run is wanted
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			noise := r.IntN(24)
			m.SetRGBA(x, y, color.RGBA{uint8(x*200/w + noise), uint8(y*200/h + noise), uint8((x/40+y/40)%2*160 + noise), 255}) //nolint:gosec // below 256
		}
	}
	var out bytes.Buffer
	err := jpeg.Encode(&out, m, &jpeg.Options{Quality: 85})
	return out.Bytes(), err
}

// chain returns three models in a row. copied puts a host step between them.
func (g *gpuBench) chain(copied bool) gpuSide {
	files := map[string]string{
		"head/config.pbtxt": g.model("[ 3, 56, 56 ]", "y", "[ 64, 56, 56 ]"), "head/1/model.pt": "@head.pt",
		"body/config.pbtxt": g.model("[ 64, 56, 56 ]", "y", "[ 64, 56, 56 ]"), "body/1/model.pt": "@body.pt",
		"tail/config.pbtxt": g.model("[ 64, 56, 56 ]", "y", "[ 10 ]"), "tail/1/model.pt": "@tail.pt",
		"chain/1/keep": "",
	}
	steps := []string{mapped("head", "x", "x", "y", "h"), mapped("body", "x", "h", "y", "b"), mapped("tail", "x", "b", "y", "y")}
	if copied {
		files["host/config.pbtxt"] = "backend: \"identity\" max_batch_size: 8\ninstance_group { kind: KIND_CPU }\n" +
			tensorPort("input", "INPUT0", "TYPE_FP32", "[ -1, -1, -1 ]") + tensorPort("output", "OUTPUT0", "TYPE_FP32", "[ -1, -1, -1 ]")
		files["host/1/keep"] = ""
		steps = []string{
			steps[0], mapped("host", "INPUT0", "h", "OUTPUT0", "hh"), mapped("body", "x", "hh", "y", "b"),
			mapped("host", "INPUT0", "b", "OUTPUT0", "bb"), mapped("tail", "x", "bb", "y", "y"),
		}
	}
	files["chain/config.pbtxt"] = ensemble("chain", tensorPort("input", "x", "TYPE_FP32", "[ 3, 56, 56 ]")+tensorPort("output", "y", "TYPE_FP32", "[ 10 ]"), steps...)
	return gpuSide{files: files, model: "chain", clients: 4}
}

// model returns the configuration of a TorchScript model with an input x.
func (g *gpuBench) model(inDims, out, outDims string) string {
	return "platform: \"pytorch_libtorch\" max_batch_size: 8\ndynamic_batching { }\ninstance_group { kind: " + g.kind + " count: 1 }\n" +
		tensorPort("input", "x", "TYPE_FP32", inDims) + tensorPort("output", out, "TYPE_FP32", outDims)
}

func param(key, value string) string {
	return fmt.Sprintf("parameters { key: %q value { string_value: %q } }\n", key, value)
}

func tensorPort(kind, name, dtype, dims string) string {
	return fmt.Sprintf("%s { name: %q data_type: %s dims: %s }\n", kind, name, dtype, dims)
}

func ensemble(name, ports string, steps ...string) string {
	return fmt.Sprintf("name: %q platform: \"ensemble\" max_batch_size: 8\n%sensemble_scheduling {\n%s}\n", name, ports, strings.Join(steps, ""))
}

// mapped returns a step of an ensemble: one input and its tensor, then the outputs and theirs.
func mapped(model, in, from string, outs ...string) string {
	var s strings.Builder
	fmt.Fprintf(&s, "  step { model_name: %q model_version: -1 input_map { key: %q value: %q }", model, in, from)
	for i := 0; i < len(outs); i += 2 {
		fmt.Fprintf(&s, " output_map { key: %q value: %q }", outs[i], outs[i+1])
	}
	return s.String() + " }\n"
}

// write writes the repository.
func (s *gpuSide) write(root, models string) error {
	for path, content := range s.files {
		to := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if name, ok := strings.CutPrefix(content, "@"); ok {
			from, err := filepath.Abs(filepath.Join(models, name))
			if err == nil {
				err = os.Symlink(from, to)
			}
			if err != nil {
				return err
			}
			continue
		}
		if err := os.WriteFile(to, []byte(content), 0o644); err != nil { //nolint:gosec // a repository is readable
			return err
		}
	}
	return nil
}

// gpuServer is a server over a side's repository.
type gpuServer struct {
	*proc.Process
	metrics string // address of /metrics
	log     *contextLog
	dir     string
}

func (b *bench) gpuServe(s *gpuSide) (*gpuServer, error) {
	dir, err := os.MkdirTemp("", "bench-gpu")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts()
	if err = errors.Join(err, s.write(dir, b.gpus.models)); err != nil {
		return nil, err
	}
	metrics, err := proc.FreePort()
	if err != nil {
		return nil, err
	}
	v := &gpuServer{metrics: "http://127.0.0.1:" + metrics + "/metrics", log: &contextLog{}, dir: dir}
	args := append([]string{
		b.tutti, "serve", "--http-address=127.0.0.1", "--http-port=" + ports[0], "--allow-grpc=false", "--metrics-address=127.0.0.1", "--metrics-port=" + metrics,
		"--metrics-interval-ms=200", "--allow-client-shm=true", "--model-repository=" + dir,
	}, strings.Fields(b.gpus.args)...)
	v.Process, err = proc.Start(context.Background(), &proc.Settings{Command: args, HTTP: "127.0.0.1:" + ports[0], Output: v.log, Patience: 3 * time.Minute})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w\n%s", err, v.log.text()), os.RemoveAll(dir))
	}
	return v, nil
}

func (v *gpuServer) close() error { return errors.Join(v.Stop(), os.RemoveAll(v.dir)) }

// gpuRun returns the throughput of a side in requests per second, after a warm-up.
func (b *bench) gpuRun(s *gpuSide, requests []load.Request) (rate float64, err error) {
	v, err := b.gpuServe(s)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, v.close()) }()
	r, err := b.gpuLoad(v, s.clients, requests)
	return r.Throughput, err
}

func (b *bench) gpuLoad(v *gpuServer, clients int, requests []load.Request) (r load.Result, err error) {
	c, err := load.Dial(load.Target{HTTP: v.HTTP}, load.Shared, requests, clients)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := patience(c.Clients); err != nil {
		return r, err
	}
	for _, span := range []time.Duration{b.gpus.span / 2, b.gpus.span} { // the first fills pools and chooses algorithms
		if r, err = load.Run(c.Clients, load.Plan{Duration: span}); err != nil || r.First != nil {
			return r, errors.Join(err, r.First)
		}
	}
	return r, nil
}

// patience sends one request, and lets the clients wait as long as it takes for all of them to have theirs executed one after the other, several
// times over: a slow machine is no hanging server.
func patience(clients []load.Client) error {
	limit := func(d time.Duration) {
		for _, c := range clients {
			if h, ok := c.(*load.HTTP); ok {
				h.Limit(d)
			}
		}
	}
	const most = 10 * time.Minute
	limit(most)
	start := time.Now()
	if err := clients[0].Do(0); err != nil {
		return fmt.Errorf("the first request: %w", err)
	}
	limit(max(time.Minute, min(most, 4*time.Duration(len(clients))*time.Since(start))))
	return nil
}

// gpuSaturate prints the busy share of the GPU under 32 clients, and the times until the server was ready.
func (b *bench) gpuSaturate(c *gpuCase) (err error) {
	v, err := b.gpuServe(&c.ours)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.close()) }()
	if text := v.log.ready(); text != "" {
		fmt.Fprintf(b.table, "ready after the first context\t%s\t\t(at most 2 s)\t\n", text)
	}
	ctx, stop := context.WithCancel(context.Background())
	var busy []float64
	var watch sync.WaitGroup
	watch.Go(func() {
		for ctx.Err() == nil {
			if u, err := sampleOf(ctx, v.metrics, "nv_gpu_utilization"); err == nil {
				busy = append(busy, u)
			}
			select {
			case <-ctx.Done():
			case <-time.After(250 * time.Millisecond):
			}
		}
	})
	_, err = b.gpuLoad(v, 32, c.requests)
	stop()
	watch.Wait()
	if err != nil || len(busy) == 0 {
		fmt.Fprintf(b.table, "busy share of the GPU\tnot measured: the driver's libnvidia-ml.so.1 reports none\t\t\t\n")
		return err
	}
	fmt.Fprintf(b.table, "busy share of the GPU, 32 clients\t%.2f\t\t(at least 0.90)\t\n", median(busy))
	return nil
}

// errNoSample is the error of a metric that the server does not have, or not yet.
var errNoSample = errors.New("no such sample")

// sampleOf returns the first sample of a metric that has the labels.
func sampleOf(ctx context.Context, url, name string, labels ...string) (float64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(io.LimitReader(resp.Body, 1<<22))
	for lines.Scan() {
		text := lines.Text()
		lacks := func(label string) bool { return !strings.Contains(text, label) }
		if strings.HasPrefix(text, name+"{") && !slices.ContainsFunc(labels, lacks) {
			return strconv.ParseFloat(text[strings.LastIndexByte(text, ' ')+1:], 64)
		}
	}
	return 0, cmp.Or(lines.Err(), errNoSample)
}

// contextLog keeps the server's log.
type contextLog struct {
	mu  sync.Mutex
	all []byte
}

// Write implements io.Writer.
func (l *contextLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) < 1<<20 {
		l.all = append(l.all, p...)
	}
	return len(p), nil
}

func (l *contextLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.all)
}

// ready returns the time from the first context of a GPU to readiness, as the server logs it.
func (l *contextLog) ready() string {
	_, after, ok := strings.Cut(l.text(), "since_first_context=")
	if !ok {
		return ""
	}
	word, _, _ := strings.Cut(after, "\n")
	word, _, _ = strings.Cut(word, " ")
	return word
}
