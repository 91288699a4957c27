package load

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	dialTimeout = 5 * time.Second
	// responseTimeout is the time after which a server without a response counts as hanging.
	responseTimeout = time.Minute
	largest         = 1 << 30
	refusalText     = 200 // the most bytes of a refusal that are reported
)

// HTTP is a client over HTTP/1.1.
type HTTP struct {
	addr     string
	messages [][]byte
	area     *area // of the outputs in shared memory, or nil
	limit    time.Duration
	tls      *tls.Config // nil for none
	loop     *Loop       // nil for none

	conn    net.Conn
	r       *bufio.Reader
	renewed time.Time // when the connection's deadline was last set
	body    []byte    // of the last response
	head    int       // the number of its bytes that are JSON
	last    bool      // the server closes the connection after this response
	arrived func()    // unless nil, is called after each chunk of a body
	stamp   time.Time // when the last response arrived, in a loop

	mu          sync.Mutex
	open        net.Conn // conn, for Interrupt; guarded by mu
	interrupted bool     // guarded by mu
}

var _ Client = (*HTTP)(nil)

// NewHTTP returns a client that sends the given messages in turn. Each message is a whole request with its header.
func NewHTTP(addr string, messages [][]byte) *HTTP {
	return &HTTP{addr: addr, messages: messages, limit: responseTimeout}
}

// Limit sets the time after which a server without a response counts as hanging, a minute by default.
func (c *HTTP) Limit(d time.Duration) { c.limit, c.renewed = d, time.Time{} }

// Do sends a message and reads its response, which must have status 200.
func (c *HTTP) Do(i int) error {
	err := c.do(c.messages[i%len(c.messages)])
	if _, refused := err.(*ResponseError); err != nil && !refused || c.last { //nolint:errorlint // do returns it as it is
		_ = c.Close() // the request's error matters
	}
	return err
}

var errInterrupted = errors.New("interrupted")

// dial opens a connection.
func (c *HTTP) dial() error {
	conn, err := dialIn(c.loop, c.addr, c.tls)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.interrupted {
		return errors.Join(errInterrupted, conn.Close())
	}
	c.conn, c.open, c.last, c.renewed = conn, conn, false, time.Time{}
	if c.r == nil {
		c.r = bufio.NewReaderSize(conn, 64<<10)
	}
	c.r.Reset(conn)
	return nil
}

// dialIn opens a connection of a loop, or one as dial does.
func dialIn(l *Loop, addr string, t *tls.Config) (net.Conn, error) {
	if l != nil {
		return l.dial(addr)
	}
	return dial(addr, t)
}

// dial opens a connection, with TLS unless t is nil.
func dial(addr string, t *tls.Config) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	if t == nil {
		return d.Dial("tcp", addr)
	}
	return tls.DialWithDialer(&d, "tcp", addr, t)
}

// Interrupt ends a request under way with an error, and makes all further ones fail. It may be called concurrently.
func (c *HTTP) Interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.interrupted = true; c.open != nil {
		_ = c.open.Close()
	}
}

func (c *HTTP) do(message []byte) error {
	now := time.Now()
	if c.conn == nil {
		if err := c.dial(); err != nil {
			return err
		}
	}
	if err := c.renew(now); err != nil {
		return err
	}
	if _, err := c.conn.Write(message); err != nil {
		return err
	}
	err := c.readResponse()
	if c.loop != nil {
		c.stamp = c.loop.stamp
	}
	return err
}

// Received returns when the last response of a client of a loop arrived.
func (c *HTTP) Received() time.Time { return c.stamp }

// renew moves the connection's deadline. Setting it costs a runtime timer, so it is set at most once a second.
func (c *HTTP) renew(now time.Time) error {
	if now.Sub(c.renewed) <= time.Second {
		return nil
	}
	c.renewed = now
	return c.conn.SetDeadline(now.Add(c.limit))
}

// readResponse reads one response.
func (c *HTTP) readResponse() error {
	status, err := c.readLine()
	if err != nil {
		return err
	}
	if len(status) < 12 || !bytes.HasPrefix(status, []byte("HTTP/1.")) {
		return fmt.Errorf("'%s' is no status line of HTTP/1.1", status)
	}
	code, err := strconv.Atoi(string(status[9:12]))
	if err != nil {
		return fmt.Errorf("'%s' has no status", status)
	}
	size, head, err := c.readHeader()
	if err != nil {
		return err
	}
	if size == chunked {
		err = c.readChunks()
	} else {
		err = c.readBody(size)
	}
	if err != nil {
		return err
	}
	if c.head = head; head < 0 {
		c.head = len(c.body)
	}
	if code != 200 {
		return &ResponseError{Code: strconv.Itoa(code), Text: string(c.body[:min(len(c.body), refusalText)])}
	}
	return nil
}

// readLine reads a line. The result is valid until the next read.
func (c *HTTP) readLine() ([]byte, error) {
	line, err := c.r.ReadSlice('\n')
	return bytes.TrimRight(line, "\r\n"), err
}

// chunked stands for the unknown size of a chunked body.
const chunked = -1

// readHeader reads the header and returns the body's size and the number of its bytes that are JSON, or -1 if all
// are.
func (c *HTTP) readHeader() (size, head int, err error) {
	c.body, head = c.body[:0], -1
	for {
		line, err := c.readLine()
		if err != nil || len(line) == 0 {
			return size, head, err
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			size, err = strconv.Atoi(string(value))
		case bytes.EqualFold(name, []byte("Inference-Header-Content-Length")):
			head, err = strconv.Atoi(string(value))
		case bytes.EqualFold(name, []byte("Transfer-Encoding")) && bytes.EqualFold(value, []byte("chunked")):
			size = chunked
		case bytes.EqualFold(name, []byte("Connection")):
			c.last = bytes.EqualFold(value, []byte("close"))
		}
		if err != nil || size < chunked {
			return 0, 0, fmt.Errorf("'%s' has no good number", line)
		}
	}
}

// readBody reads n more bytes of the body. It allocates as they arrive, whatever size the header claims.
func (c *HTTP) readBody(n int) error {
	if n < 0 || n > largest-len(c.body) {
		return fmt.Errorf("a response of %d bytes and %d more is too large", len(c.body), n)
	}
	for n > 0 {
		at, part := len(c.body), min(n, 1<<20)
		c.body = slices.Grow(c.body, part)[:at+part]
		if _, err := io.ReadFull(c.r, c.body[at:]); err != nil {
			return err
		}
		n -= part
	}
	return nil
}

// readChunks reads a chunked body.
func (c *HTTP) readChunks() error {
	for {
		line, err := c.readLine()
		if err != nil {
			return err
		}
		text, _, _ := bytes.Cut(line, []byte(";"))
		n, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 16, 31)
		if err != nil {
			return fmt.Errorf("'%s' is no size of a chunk", line)
		}
		if n > 0 {
			if err := c.readBody(int(n)); err != nil {
				return err
			}
		}
		// The end of the chunk, or of the whole body when there are no trailers.
		if line, err = c.readLine(); err != nil {
			return err
		}
		if len(line) > 0 {
			return fmt.Errorf("'%s' follows a chunk", line)
		}
		if n == 0 {
			return nil
		}
		if c.arrived != nil {
			c.arrived()
			if err := c.renew(time.Now()); err != nil { // each part of a stream gives the server as much time again
				return err
			}
		}
	}
}

// Body returns the last response's body. It is valid until the next request.
func (c *HTTP) Body() []byte { return c.body }

// Outputs decodes the last response.
func (c *HTTP) Outputs() ([]Output, error) { return readHTTP(c.body, c.head, c.area) }

// Close closes the connection. The next request opens a new one.
func (c *HTTP) Close() error {
	if c.conn == nil {
		return nil
	}
	conn := c.conn
	c.mu.Lock()
	c.conn, c.open = nil, nil
	c.mu.Unlock()
	if err := conn.Close(); !errors.Is(err, net.ErrClosed) { // an interruption closes it too
		return err
	}
	return nil
}
