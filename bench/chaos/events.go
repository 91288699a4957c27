package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tutti-server/tutti/client"
)

// play runs an event. An error means that the event itself could not be made, or that the server refused what it must not refuse.
func (x *run) play(ctx context.Context, e *event) error {
	switch e.Kind {
	case "kill-worker":
		return x.signal(e, isPython, syscall.SIGKILL)
	case "kill-isolated":
		return x.signal(e, isIsolated, syscall.SIGKILL)
	case "stall-worker":
		return x.stall(ctx, e)
	case "freeze-server":
		return freeze(ctx, x.server.PID(), e.For)
	case "disk-full":
		x.disk.Lock()
		defer x.disk.Unlock()
		x.full.Store(true)
		defer x.full.Store(false)
		return fullDisk(ctx, x.server.PID(), e.For)
	case "redis-gone":
		return x.redis.away(ctx, e.For)
	case "region-gone":
		return x.regionGone(ctx, e)
	case "bucket-gone":
		x.bucket.set(true)
		defer x.bucket.set(false)
		pause(ctx, e.For)
		return nil
	case "reload", "unload", "change", "break", "new-version", "bucket-load":
		x.models.Lock() // one change of the repository at a time
		defer x.models.Unlock()
		return x.modelEvent(ctx, e)
	}
	return x.rude(ctx, e)
}

func isPython(line string) bool { return strings.Contains(line, "python") }

func isIsolated(line string) bool { return line != "" && !isPython(line) }

// child draws one of the server's processes.
func (x *run) child(e *event, is func(string) bool) (int, error) {
	pids, err := x.server.children()
	if err != nil {
		return 0, err
	}
	pids = slices.DeleteFunc(pids, func(pid int) bool { return !is(command(pid)) })
	if len(pids) == 0 {
		return 0, nil
	}
	return pids[e.Draw%uint64(len(pids))], nil
}

// signal sends a signal to one child.
func (x *run) signal(e *event, is func(string) bool, s syscall.Signal) error {
	pid, err := x.child(e, is)
	if err != nil || pid == 0 {
		return err
	}
	if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// stall stops a child for a while.
func (x *run) stall(ctx context.Context, e *event) error {
	pid, err := x.child(e, func(string) bool { return true })
	if err != nil || pid == 0 {
		return err
	}
	return freeze(ctx, pid, e.For)
}

// freeze stops a process for a while. All its clocks make a step then, as those of a virtual machine do that is moved.
func freeze(ctx context.Context, pid int, d time.Duration) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	pause(ctx, d)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// regionGone takes the shared memory of the traffic away for a while.
func (x *run) regionGone(ctx context.Context, e *event) error {
	x.memory.Lock()
	defer x.memory.Unlock()
	if err := repeat(func() error { return x.c.http.UnregisterSystem(ctx, regionName) }); err != nil { // it is refused while requests use it
		return err
	}
	pause(ctx, e.For)
	return repeat(func() error { return x.c.shared.register(context.WithoutCancel(ctx), x.c) })
}

// repeat does again what a full disk, a killed worker or a bucket that is away may fail.
func repeat(do func() error) (err error) {
	for until := time.Now().Add(patience); time.Now().Before(until); {
		if err = do(); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// model draws a model with files.
func (x *run) model(e *event) string {
	local := slices.DeleteFunc(slices.Clone(x.repo.models), func(m string) bool { return m == far || !wants(x.set.only.models, m) })
	return local[e.Draw%uint64(len(local))]
}

// modelEvent changes the repository. Whatever happens, the model is as before afterwards.
func (x *run) modelEvent(ctx context.Context, e *event) error {
	if e.Kind == "bucket-load" {
		return x.bucketLoad(ctx)
	}
	model := x.model(e)
	restore := func() error {
		return repeat(func() error { return x.c.http.Load(context.WithoutCancel(ctx), model) })
	}
	path := x.repo.config(model)
	switch e.Kind {
	case "unload":
		if err := x.c.http.Unload(ctx, model, false); err != nil {
			return err
		}
		pause(ctx, e.For)
		return restore()
	case "new-version":
		return x.newVersion(ctx, model, e.For, restore)
	case "reload":
		if err := x.repo.touch(model); err != nil {
			return err
		}
		return restore()
	}
	before, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := string(before) + "\nmodel_warmup { name: \"of chaos\" batch_size: 0 }\n"
	if e.Kind == "break" {
		text = string(before) + "\noutput { name: \"of chaos\""
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	loaded := x.c.http.Load(ctx, model)
	if e.Kind == "break" && loaded == nil {
		x.fault("model " + model + " loads with a configuration that cannot be read")
	}
	if err := os.WriteFile(path, before, 0o600); err != nil {
		return err
	}
	return restore()
}

// newVersion adds a version for a while.
func (x *run) newVersion(ctx context.Context, model string, d time.Duration, restore func() error) error {
	dir := filepath.Join(x.repo.dir, model)
	if err := os.CopyFS(filepath.Join(dir, "2"), os.DirFS(filepath.Join(dir, "1"))); err != nil {
		return err
	}
	err := x.c.http.Load(ctx, model)
	if refused := (*client.Error)(nil); errors.As(err, &refused) {
		err = nil // a full disk or a killed worker may be the reason: the version before serves
	}
	pause(ctx, d)
	return errors.Join(err, os.RemoveAll(filepath.Join(dir, "2")), restore())
}

// bucketLoad loads the model of the bucket, which fails while the bucket is away.
func (x *run) bucketLoad(ctx context.Context) error {
	if err := x.c.http.Load(ctx, far); err == nil {
		return nil
	}
	return repeat(func() error { return x.c.http.Load(context.WithoutCancel(ctx), far) })
}
