package tritonlib

import (
	"context"
	"encoding/gob"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/subprocess"
)

// description is what a child needs to load a model.
type description struct {
	Library, Backend, Folder, Settings string // Folder is that of the library, Settings are the backend's as JSON
	Model, ModelDir, Config            string // Config is JSON
	Version                            int64
	Complete                           bool // the library may complete the configuration

	Layout         subprocess.Layout
	Slots, Verbose int
}

// What a command tells a child to do.
const (
	opBind = iota
	opInstance
	opCloseInstance
	opUnload
)

// command is sent to a child, which responds with a reply.
type command struct {
	Op                      int
	Index                   int // of an instance
	Name                    string
	Kind                    int
	Profiles                []string
	Inputs, Outputs, States []string
}

// reply is the response of a child to its description, and to a command.
type reply struct {
	Failed bool
	Code   status.Code
	Text   string
	Config string // that the library has set, as JSON; empty if it has set none
}

func (r *reply) err() error {
	if !r.Failed {
		return nil
	}
	return status.Errorf(r.Code, "%s", r.Text)
}

// process is a running child.
type process struct {
	*subprocess.Process
	*subprocess.Range

	model   string
	heap    int // where blocks begin
	slots   []*slot
	used    chan struct{} // has a value for each slot in use
	out     *gob.Encoder
	in      *gob.Decoder
	notices *os.File
	pumped  chan struct{} // closed when pump has returned
	told    chan struct{} // closed when all notices were handled
	exited  atomic.Bool

	commands sync.Mutex // held by a command

	mu   sync.Mutex
	idle []*slot // the last one was used last; guarded by mu
}

// start starts a child that loads the library and the model. It gives up when ctx is done. made is the reply of the child.
func (m *model) start(ctx context.Context) (p *process, made *reply, err error) {
	p = &process{model: m.name, pumped: make(chan struct{}), told: make(chan struct{})}
	if p.Range, err = subprocess.NewRange(m.shared, p.free); err != nil {
		return nil, nil, status.Reasonf(status.MemoryLimit, "model '%s': no memory for its process: %w", m.name, err)
	}
	n := slotsOf(len(p.Mem))
	p.heap = atSlots + n*slotSize
	clear(p.Mem[:atMailbox])
	p.used = make(chan struct{}, n)
	for i := range n {
		s := newSlot(p, i)
		clear(s.mem[:slotRequest])
		p.slots = append(p.slots, s)
		p.idle = append(p.idle, s)
	}
	if err := p.launch(m.shared.File(), m.log); err != nil {
		p.Release()
		return nil, nil, status.Reasonf(status.InstanceLost, "cannot start a process for model '%s': %w", m.name, err)
	}
	go p.pump()
	go newNotices(m, p).read(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { p.Kill("loading was given up") })
	defer stop()
	about := m.about
	about.Layout, about.Slots = p.Layout(), n
	made, err = p.exchange(&about)
	switch {
	case err == nil && !made.Failed:
		m.log.DebugContext(ctx, "a backend library has a process", slog.Int("pid", p.PID), slog.String("library", about.Library))
		return p, made, nil
	case err == nil:
		err = made.err()
	case ctx.Err() != nil:
		err = status.ErrCancelled
	default:
		err = status.Reasonf(status.InstanceLost, "the process of model '%s' ended while it loaded '%s': %s", m.name, about.Library, p.end())
	}
	p.Close()
	return nil, nil, err
}

// end waits for the exit of a process that has closed its socket, and returns why it has ended.
func (p *process) end() string {
	p.AwaitEnd("it closed its socket")
	return p.Why
}

// exchange sends a value and receives the reply.
func (p *process) exchange(v any) (*reply, error) {
	p.commands.Lock()
	defer p.commands.Unlock()
	r := &reply{}
	err := p.out.Encode(v)
	if err == nil {
		err = p.in.Decode(r)
	}
	return r, err
}

// command has the child do something.
func (p *process) command(ctx context.Context, c command) error {
	stop := context.AfterFunc(ctx, func() { p.Kill("loading was given up") })
	defer stop()
	r, err := p.exchange(&c)
	switch {
	case err == nil:
		return r.err()
	case ctx.Err() != nil:
		return status.ErrCancelled
	}
	return status.Reasonf(status.InstanceLost, "the process of model '%s' ended: %s", p.model, p.end())
}

// exitTime is how long a process may take to unload its library and to exit.
const exitTime = 10 * time.Second

// launch starts the process.
func (p *process) launch(shared *os.File, log *slog.Logger) error {
	own, theirs, err := subprocess.SocketPair(unix.SOCK_SEQPACKET)
	if err != nil {
		return err
	}
	p.notices = own
	defer theirs.Close()
	p.Process, err = subprocess.Start(&subprocess.Settings{
		Mode: mode, Name: p.model, Env: []string{"GOMAXPROCS=2"},
		Files: []*os.File{theirs}, Shared: shared, Log: log, Printed: "the process of a backend library printed", ExitTime: exitTime,
		Exited: func() {
			p.exited.Store(true)
			notify := counter(p.Mem, atNotify)
			notify.Add(1)
			wake(notify)
		},
	})
	if err != nil {
		return errors.Join(err, own.Close())
	}
	p.out, p.in = gob.NewEncoder(p.Socket), gob.NewDecoder(p.Socket)
	return nil
}

// Close has the process unload its library and exit, and frees its memory once no tensor is there any more.
func (p *process) Close() {
	p.Process.Close()
	<-p.pumped
	<-p.told
	_ = p.notices.Close()
	p.Release()
}
