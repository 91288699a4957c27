package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
)

// taxTimer waits for a simulated device to finish.
type taxTimer interface {
	Wait(d time.Duration) error
	Close() error
}

// taxDevices declares the backend "bench". Its models take the time of a device and no CPU time, and return their
// first input. Every instance has its own timer.
func taxDevices(timer func() (taxTimer, error)) backends.Factory {
	return backends.Factory{Name: "bench", New: func(backends.Options) (backends.Backend, error) { return taxBackend{timer}, nil }}
}

type taxBackend struct{ timer func() (taxTimer, error) }

// Load reads the model's execution time from its parameters.
func (b taxBackend) Load(_ context.Context, s backends.Settings) (backends.Model, error) {
	m := &taxLoaded{timer: b.timer, sig: config.ModelOf(config.SignatureOf(s.Config))}
	m.sig.Model, m.sig.Version = s.Model, s.Version
	for key, to := range map[string]*time.Duration{"fixed": &m.fixed, "row": &m.row} {
		var err error
		if *to, err = time.ParseDuration(s.Param(key)); err != nil {
			return nil, fmt.Errorf("model '%s': parameter '%s': %w", s.Model, key, err)
		}
	}
	return m, nil
}

// Close does nothing.
func (taxBackend) Close() error { return nil }

type taxLoaded struct {
	timer      func() (taxTimer, error)
	sig        *config.Signature
	fixed, row time.Duration
}

// Signature returns the signature that the configuration declares.
func (m *taxLoaded) Signature() *config.Signature { return m.sig }

// Close does nothing.
func (*taxLoaded) Close() error { return nil }

// NewInstance returns a device that no other instance uses.
func (m *taxLoaded) NewInstance(context.Context, tensor.Place) (backends.Instance, error) {
	timer, err := m.timer()
	return &taxDevice{m, timer}, err
}

// taxDevice executes one batch at a time.
type taxDevice struct {
	model *taxLoaded
	timer taxTimer
}

// Execute waits for the batch's execution time on the device.
func (d *taxDevice) Execute(_ context.Context, b *backends.Batch) error {
	if err := d.timer.Wait(d.model.fixed + time.Duration(b.Rows)*d.model.row); err != nil {
		return err
	}
	for port := range b.Out {
		b.SetOutput(port, b.In[0].Retain())
	}
	return nil
}

// Close frees the timer.
func (d *taxDevice) Close() error { return d.timer.Close() }

// kernelTimer is a timer of the kernel. Go's timers are up to a millisecond late in an idle process.
type kernelTimer struct {
	fd    int
	file  *os.File
	fired [8]byte
}

func newKernelTimer() (taxTimer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &kernelTimer{fd: fd, file: os.NewFile(uintptr(fd), "timer")}, nil
}

// Wait returns when the time is over.
func (t *kernelTimer) Wait(d time.Duration) error {
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if err := unix.TimerfdSettime(t.fd, 0, &at, nil); err != nil {
		return err
	}
	_, err := t.file.Read(t.fired[:])
	return err
}

// Close frees the timer.
func (t *kernelTimer) Close() error { return t.file.Close() }
