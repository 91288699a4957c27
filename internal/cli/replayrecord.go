package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/internal/tracing/capture"
)

// replayRecorder captures requests by the API of the dashboard.
type replayRecorder struct{ captureSession }

// Record implements replay.Recorder.
func (r *replayRecorder) Record(ctx context.Context, model string, trace tracing.TraceID, send func() error, use func(*capture.File) error) (sent, failed error) {
	v, err := r.start(ctx, model, trace)
	if err != nil {
		return nil, err
	}
	sent = send()
	if err := r.await(ctx, v); err != nil {
		return sent, err
	}
	switch {
	case len(v.Snapshots) > 0:
	case v.Missed+v.Taken > 0:
		return sent, errors.New("the server's --capture-bytes has no room for its tensors; --responses compares responses only")
	case sent == nil:
		return sent, errors.New("the server whose dashboard responds has not executed it: is a load balancer in between? --responses compares responses only")
	default:
		return sent, r.stop(ctx, v) // it was refused before it could be captured
	}
	h := &v.Snapshots[len(v.Snapshots)-1]
	resp, err := r.api.send(ctx, http.MethodGet, "traces/"+url.PathEscape(h.Trace+"-"+h.Span)+"/capture.npz", nil)
	if err != nil {
		return sent, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxCapture))
	if err != nil {
		return sent, err
	}
	f, err := capture.ReadFile(bytes.NewReader(body), int64(len(body)))
	if err != nil {
		return sent, fmt.Errorf("what the server captured %w", err)
	}
	return sent, use(f)
}

// start starts a capture of one request.
func (r *replayRecorder) start(ctx context.Context, model string, trace tracing.TraceID) (*inspect.CaptureView, error) {
	body, err := json.Marshal(inspect.CaptureRule{Model: model, Trace: trace.String(), Count: 1})
	if err != nil {
		return nil, err
	}
	v := &inspect.CaptureView{}
	return v, r.json(ctx, http.MethodPost, "captures", body, v)
}

// stop ends a capture.
func (r *replayRecorder) stop(ctx context.Context, v *inspect.CaptureView) error {
	return r.json(context.WithoutCancel(ctx), http.MethodDelete, "captures/"+strconv.FormatUint(v.ID, 10), nil, v)
}

// replayPause is the interval between two queries of a capture whose request has ended.
const replayPause = 2 * time.Millisecond

// await waits until the request of a capture, which the client has the response of, has ended on the server too.
func (r *replayRecorder) await(ctx context.Context, v *inspect.CaptureView) error {
	path := "captures/" + strconv.FormatUint(v.ID, 10)
	for {
		if err := r.json(ctx, http.MethodGet, path, nil, v); err != nil || v.Pending == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(replayPause):
		}
	}
}
