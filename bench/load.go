package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// load sends n requests over the given number of connections, each sending the next
// request when its last one is answered, and returns the server's CPU time per
// request. requests are whole HTTP messages, sent in turn.
func (p *process) load(requests [][]byte, connections, n int) (time.Duration, error) {
	before, err := p.cpu()
	if err != nil {
		return 0, err
	}
	var next atomic.Int64
	errs := make([]error, connections)
	var wg sync.WaitGroup
	for c := range connections {
		wg.Go(func() { errs[c] = p.connection(requests, &next, int64(n)) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	after, err := p.cpu()
	return (after - before) / time.Duration(n), err
}

func (p *process) connection(requests [][]byte, next *atomic.Int64, n int64) error {
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	r := bufio.NewReaderSize(conn, 64<<10)
	for i := next.Add(1) - 1; i < n; i = next.Add(1) - 1 {
		if _, err := conn.Write(requests[int(i)%len(requests)]); err != nil {
			return err
		}
		if err := discardResponse(r); err != nil {
			return err
		}
	}
	return nil
}

// discardResponse reads one response with a Content-Length and fails on any but 200.
func discardResponse(r *bufio.Reader) error {
	text := textproto.NewReader(r)
	status, err := text.ReadLine()
	if err != nil {
		return err
	}
	header, err := text.ReadMIMEHeader()
	if err != nil {
		return err
	}
	size, err := strconv.Atoi(header.Get("Content-Length"))
	if err != nil {
		return err
	}
	var body bytes.Buffer
	if _, err := io.CopyN(&body, r, int64(size)); err != nil {
		return err
	}
	if !strings.Contains(status, " 200 ") {
		return fmt.Errorf("%s: %s", status, body.String())
	}
	return nil
}

// post is a request in the binary extension: a JSON header, then the tensor's bytes.
func post(path, header string, data []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: application/octet-stream\r\n", path)
	fmt.Fprintf(&b, "Inference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n%s", len(header), len(header)+len(data), header)
	b.Write(data)
	return b.Bytes()
}
