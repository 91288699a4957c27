package isolate

import (
	"context"
	"encoding/gob"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/subprocess"
)

// description is what a child needs to load a model.
type description struct {
	Backend       string
	Values        map[string]string            // of --backend-config
	Others        map[string]map[string]string // of the other backends
	Model         string
	Version       int64
	ModelDir, Dir string
	Config        []byte // modelconfig.ModelConfig
	Filename      string
	Instances     int
	Strict        bool
	Layout        subprocess.Layout
}

func describe(b *backend, s *backends.Settings) (*description, error) {
	cfg := proto.CloneOf(s.Config)
	delete(cfg.GetParameters(), Param)
	text, err := proto.Marshal(cfg)
	return &description{
		Backend: b.factory.Name, Values: b.options.Config, Others: b.options.Others, Model: s.Model, Version: s.Version, ModelDir: s.ModelDir, Dir: s.Dir,
		Config: text, Filename: s.Filename, Instances: s.Instances, Strict: s.Strict,
	}, err
}

// loaded is the response of a child: an error, or what the model is.
type loaded struct {
	Code                status.Code
	Reason              status.Reason
	RetryAfter          time.Duration
	Text                string
	Model               string
	Version             int64
	MaxBatch            int
	Inputs, Outputs     []port
	Threads, PID, Procs int
	Precision           string
}

// port is a config.Port of a backend's model.
type port struct {
	Name                                        string
	DType                                       tensor.DType
	Dims                                        []int64
	Optional, Unbatched, ShapeTensor, Unchecked bool
}

func portsOf(list []config.Port) (out []port) {
	for i := range list {
		p := &list[i]
		out = append(out, port{p.Name, p.DType, p.Dims.Dims(), p.Optional, p.Unbatched, p.ShapeTensor, p.Unchecked})
	}
	return out
}

func (l *loaded) signature() (*config.Signature, error) {
	sig := &config.Signature{Model: l.Model, Version: l.Version, MaxBatch: l.MaxBatch}
	add := func(to *[]config.Port, from []port) {
		for _, p := range from {
			*to = append(*to, config.Port{
				Name: p.Name, DType: p.DType, Dims: tensor.Of(p.Dims...), Optional: p.Optional, Unbatched: p.Unbatched, ShapeTensor: p.ShapeTensor, Unchecked: p.Unchecked,
			})
		}
	}
	add(&sig.Inputs, l.Inputs)
	add(&sig.Outputs, l.Outputs)
	if len(sig.Outputs) == 0 {
		return nil, status.Errorf(status.Internal, "model '%s': its process describes no outputs", l.Model)
	}
	return sig, nil
}

// process is a running child.
type process struct {
	*subprocess.Process
	*subprocess.Range

	control control

	mu    sync.Mutex
	freed []uint64 // slots of outputs to free; guarded by mu
}

// exitTime is how long a process may take to exit.
const exitTime = 5 * time.Second

// start starts a child that loads the model and makes an instance. It gives up when ctx is done.
func (m *model) start(ctx context.Context) (p *process, made *loaded, err error) {
	p = &process{}
	if p.Range, err = subprocess.NewRange(m.shared, p.free); err != nil {
		return nil, nil, status.Reasonf(status.MemoryLimit, "model '%s': no memory for its process: %w", m.name, err)
	}
	p.control = control{p.Mem[:controlSize]}
	clear(p.Mem[:atRequest])
	p.Process, err = subprocess.Start(&subprocess.Settings{
		Mode: mode, Name: m.name, Env: []string{"GOMAXPROCS=" + strconv.Itoa(runtime.GOMAXPROCS(0))},
		Shared: m.shared.File(), Log: m.log, Printed: "the process of an isolated model printed", ExitTime: exitTime,
		Exited: func() {
			p.control.counter(atEnded).Store(gone)
			wake(p.control.counter(atEnded))
		},
	})
	if err != nil {
		p.Release()
		return nil, nil, status.Reasonf(status.InstanceLost, "cannot start a process for model '%s': %w", m.name, err)
	}
	stop := context.AfterFunc(ctx, func() { p.Kill("loading was given up") })
	defer stop()
	about := *m.about
	about.Layout = p.Layout()
	made = &loaded{}
	err = gob.NewEncoder(p.Socket).Encode(&about)
	if err == nil {
		err = gob.NewDecoder(p.Socket).Decode(made)
	}
	switch {
	case err == nil && made.Text == "":
		m.log.DebugContext(ctx, "an isolated instance has a process", slog.Int("pid", p.PID))
		return p, made, nil
	case err == nil:
		err = &status.Error{Code: made.Code, Reason: status.ParseReason(string(made.Reason)), RetryAfter: made.RetryAfter, Msg: made.Text}
	case ctx.Err() != nil:
		err = status.ErrCancelled
	default:
		p.AwaitEnd("it closed its socket")
		err = status.Reasonf(status.InstanceLost, "the process of model '%s' ended while it loaded the model: %s", m.name, p.Why)
	}
	p.Close()
	return nil, nil, err
}

// Close ends the process and frees its memory, once no tensor is there any more.
func (p *process) Close() {
	p.Process.Close()
	p.Release()
}

// free has the child free an output with the next request.
func (p *process) free(slot uint64) {
	p.mu.Lock()
	p.freed = append(p.freed, slot)
	p.mu.Unlock()
}
