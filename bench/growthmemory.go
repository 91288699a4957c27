package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/proto/inference"
)

const (
	inFlightLimit = 512 << 20
	memoryClients = 16
	memoryCalls   = 2 // of each client
	slowClients   = 2 // clients that announce a request and never send all of it
	requestSize   = 100 << 20
)

// growthMemory sends 100 MB requests from more clients than the server may hold requests for, and from some clients
// that never finish. The server must respond to the requests that it has memory for and refuse the others.
func (b *bench) growthMemory() error {
	for _, way := range []struct {
		name string
		send func(p *process) (accepted, refused int64, err error)
	}{
		{"HTTP binary", floodHTTP},
		{"gRPC", floodGRPC},
	} {
		p, err := b.serveAs([]string{"--http-max-input-size=1073741824", fmt.Sprintf("--max-inflight-bytes=%d", inFlightLimit)}, identities)
		if err != nil {
			return err
		}
		accepted, refused, err := way.send(p)
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", way.name, err), p.Stop())
		}
		peak, err := p.peak()
		if err = errors.Join(err, p.Stop()); err != nil {
			return err
		}
		fmt.Fprintf(b.table, "%s, %d clients of 100 MB requests, %d MB may be in flight\tresident at most %.0f MiB\t%d accepted\t%d refused\n",
			way.name, memoryClients, inFlightLimit>>20, peak, accepted, refused)
	}
	return nil
}

// peak returns the largest resident memory of the process so far, in MiB.
func (p *process) peak() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(text), "VmHWM:")
	if !ok {
		return 0, errors.New("no VmHWM")
	}
	kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	return kib / 1024, err
}

// flood runs the clients and counts the requests that got a response and those that were refused. No client waits
// for Retry-After, because the server must stay busy.
func flood(send func() (bool, error)) (accepted, refused int64, err error) {
	var yes, no atomic.Int64
	errs := make([]error, memoryClients)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for range memoryCalls {
				ok, err := send()
				switch {
				case err != nil:
					errs[i] = err
					return
				case ok:
					yes.Add(1)
				default:
					no.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return yes.Load(), no.Load(), errors.Join(errs...)
}

func floodHTTP(p *process) (accepted, refused int64, err error) {
	request := binaryInfer("fp32", requestSize/4)
	for range slowClients {
		c, err := net.Dial("tcp", p.HTTP)
		if err != nil {
			return 0, 0, err
		}
		defer c.Close()
		if _, err := c.Write(request[:1<<20]); err != nil {
			return 0, 0, err
		}
	}
	return flood(func() (bool, error) { return sendOnce(p.HTTP, request) })
}

// sendOnce sends a request on a new connection and reports whether the server accepted it. A refusal arrives before
// the whole request is sent.
func sendOnce(address string, request []byte) (bool, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return false, err
	}
	defer c.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = c.Write(request) // the response reports the failure
	}()
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 256<<10), nil)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if _, err = io.Copy(io.Discard, resp.Body); err != nil {
		return false, err
	}
	if resp.StatusCode == http.StatusServiceUnavailable {
		_ = c.Close()
		<-sent
		return false, nil
	}
	<-sent
	if resp.StatusCode != http.StatusOK {
		return false, errors.New(resp.Status)
	}
	return true, nil
}

func floodGRPC(p *process) (accepted, refused int64, err error) {
	request := largeRequest(requestSize)
	return flood(func() (bool, error) {
		c, err := dialLarge(p.GRPC)
		if err != nil {
			return false, err
		}
		defer c.Close()
		_, err = inference.NewGRPCInferenceServiceClient(c).ModelInfer(context.Background(), request)
		if grpcstatus.Code(err) == codes.Unavailable {
			return false, nil
		}
		return err == nil, err
	})
}
