package isolate

import (
	"context"
	"encoding/gob"
	"errors"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
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

	RangeOff, RangeLen, SharedLen int
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

	model   string
	shared  *tensor.SharedMemory
	control control
	socket  *os.File

	mu    sync.Mutex
	freed []uint64 // slots of outputs to free; guarded by mu
	spare []*held  // guarded by mu
}

// start starts a child that loads the model and makes an instance. It gives up when ctx is done.
func (m *model) start(ctx context.Context) (p *process, made *loaded, err error) {
	mem, err := subprocess.NewRange(m.shared)
	if err != nil {
		return nil, nil, status.Reasonf(status.MemoryLimit, "model '%s': no memory for its process: %w", m.name, err)
	}
	p = &process{model: m.name, shared: m.shared, Range: mem, control: control{mem.Mem[:controlSize]}}
	clear(p.Mem[:atRequest])
	if err := p.launch(m.log); err != nil {
		p.Release()
		return nil, nil, status.Reasonf(status.InstanceLost, "cannot start a process for model '%s': %w", m.name, err)
	}
	stop := context.AfterFunc(ctx, func() { p.Kill("loading was given up") })
	defer stop()
	about := *m.about
	about.RangeOff, _ = m.shared.Offset(unsafe.Pointer(unsafe.SliceData(p.Mem)))
	about.RangeLen, about.SharedLen = len(p.Mem), m.shared.Len()
	made = &loaded{}
	err = gob.NewEncoder(p.socket).Encode(&about)
	if err == nil {
		err = gob.NewDecoder(p.socket).Decode(made)
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
	p.close()
	return nil, nil, err
}

// exitTime is how long a process may take to exit.
const exitTime = 5 * time.Second

// launch starts the process.
func (p *process) launch(log *slog.Logger) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_ = unix.SetNonblock(pair[0], true) // it is a socket
	p.socket = os.NewFile(uintptr(pair[0]), "isolated")
	theirs := os.NewFile(uintptr(pair[1]), "isolated")
	defer theirs.Close()
	p.Process, err = subprocess.Start(&subprocess.Settings{
		Args: []string{hiddenArgument, p.model}, Env: []string{guard + "=1", "GOMAXPROCS=" + strconv.Itoa(runtime.GOMAXPROCS(0))},
		Files: []*os.File{theirs}, Shared: p.shared.File(), Log: log, Printed: "the process of an isolated model printed", ExitTime: exitTime,
		Exited: func() {
			p.control.counter(atEnded).Store(gone)
			wake(p.control.counter(atEnded))
		},
	})
	if err != nil {
		return errors.Join(err, p.socket.Close())
	}
	return nil
}

// close ends the process and frees its memory, once no tensor is there any more.
func (p *process) close() {
	_ = p.socket.Close()
	p.AwaitEnd("it did not exit when it was asked to")
	p.Release()
}

// held is an output in the range of a process.
type held struct {
	buf  tensor.Buffer
	of   *process
	slot uint64
}

// Free implements tensor.Owner: the child frees the output with the next request.
func (h *held) Free(*tensor.Buffer) {
	p := h.of
	p.mu.Lock()
	p.freed = append(p.freed, h.slot)
	p.spare = append(p.spare, h)
	p.mu.Unlock()
	p.Release()
}

// wrap returns an output in the range as a buffer.
func (p *process) wrap(slot uint64, mem []byte) *tensor.Buffer {
	p.mu.Lock()
	var h *held
	if n := len(p.spare); n > 0 {
		h, p.spare = p.spare[n-1], p.spare[:n-1]
	}
	p.mu.Unlock()
	p.Use() // the execution uses it
	if h == nil {
		h = &held{of: p}
	}
	h.slot = slot
	h.buf.Reset(h, tensor.Place{}, unsafe.Pointer(unsafe.SliceData(mem)), len(mem))
	return &h.buf
}
