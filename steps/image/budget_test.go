package image

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/png"
	"testing"

	"golang.org/x/sync/semaphore"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/steps"
)

// TestPixelsInProgress verifies that an image waits while others hold the pixels,
// that a client who leaves ends the wait, and that the pixels are given back.
func TestPixelsInProgress(t *testing.T) {
	t.Parallel()
	f := NewFactory()
	params, err := f.Resolve(map[string]string{"width": "2", "height": "2"})
	if err != nil {
		t.Fatal(err)
	}
	made, err := newStep(files)(&steps.Settings{Model: "m", MaxBatch: 1, Params: params})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := made.(*step)
	s.pixels = semaphore.NewWeighted(4)
	b := smallBatch(t)
	if err := s.pixels.Acquire(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx, b); !errors.Is(err, context.Canceled) {
		t.Fatalf("without pixels to spare: got error %v, want %v", err, context.Canceled)
	}
	ended := make(chan error)
	go func() { ended <- s.Run(t.Context(), b) }()
	s.pixels.Release(1)
	if err := <-ended; err != nil || b.Requests[0].Err != nil {
		t.Fatalf("with pixels to spare: got errors %v and %v", err, b.Requests[0].Err)
	}
	if !s.pixels.TryAcquire(4) {
		t.Error("an image kept its pixels")
	}
	b.Out[0].Release()
}

// smallBatch returns a batch of one PNG of 2 x 2 pixels.
func smallBatch(t *testing.T) *backends.Batch {
	t.Helper()
	var file bytes.Buffer
	if err := png.Encode(&file, image.NewGray(image.Rect(0, 0, 2, 2))); err != nil {
		t.Fatal(err)
	}
	alloc := tensortest.NewChecked(t, nil)
	in, err := tensor.NewBytes(alloc, tensor.Of(1, 1), tensor.EncodedLen(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	tensor.AppendBytes(in.Bytes()[:0], file.Bytes())
	t.Cleanup(in.Release)
	return &backends.Batch{
		Requests: []backends.Request{{Ctx: t.Context(), Rows: 1}}, Rows: 1,
		In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: alloc,
	}
}
