package options

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Dashboard is what the server shows of itself under /ui/, and to whom.
type Dashboard struct {
	Enabled bool
	// Token lets its sender change things; nobody does when it is empty.
	Token string
}

// TraceStore is what is kept of recent requests.
type TraceStore struct {
	// Bytes is the size of the store, 0 for none.
	Bytes int64
	// Every is of how many requests that are neither failed nor slow one is kept, 0 for
	// none; AtMost is how many requests are looked at in a second.
	Every, AtMost int
	// Params names the parameters of requests that are kept.
	Params []string
}

// Capture is what may be kept of the tensors of requests.
type Capture struct {
	// Bytes bounds all that is kept, 0 for nothing at all; RequestBytes the contents of
	// one request.
	Bytes, RequestBytes int64
	// RedactTensors and RedactModels are patterns of what nobody is to see.
	RedactTensors, RedactModels []string
}

const (
	defaultCaptureBytes   = 256 << 20
	defaultCaptureRequest = 16 << 20
	maxCaptureBytes       = 64 << 30
)

const (
	defaultStoreBytes = 64 << 20
	minStoreBytes     = 1 << 20
	maxStoreBytes     = 4 << 30
	defaultStoreEvery = 100
	defaultStoreRate  = 2000
	groupDashboard    = "Dashboard"
)

func dashboardFlags() []Flag {
	return grouped(groupDashboard,
		Flag{
			Name: "dashboard", Arg: argBool, Default: yes, Own: true, Help: "Serve the dashboard and its API at /ui/ of the HTTP port",
			set: boolean(func(o *Options) *bool { return &o.Dashboard.Enabled }),
		},
		Flag{
			Name: "dashboard-token", Arg: "text", Own: true, Help: "Token that lets the dashboard change things; it is read-only without one",
			set: text(func(o *Options) *string { return &o.Dashboard.Token }),
		},
		Flag{Name: "dashboard-token-file", Arg: argFile, Own: true, Help: "File that holds the token, which no list of processes then shows", set: tokenFile},
		Flag{
			Name: "trace-store-bytes", Arg: argBytes, Default: strconv.Itoa(defaultStoreBytes), Own: true, set: storeBytes,
			Help: "Memory for the traces of recent requests, from 1048576 on, or 0 for none",
		},
		Flag{
			Name: "trace-store-every", Arg: argNumber, Default: strconv.Itoa(defaultStoreEvery), Own: true,
			Help: "Store one in so many requests that neither fail nor are slow, 0 for none of them",
			set:  integer(func(o *Options) *int { return &o.TraceStore.Every }, 0, maxInt),
		},
		Flag{
			Name: "trace-store-rate", Arg: argNumber, Default: strconv.Itoa(defaultStoreRate), Own: true,
			Help: "Look at no more requests than these in a second, and only at the failed ones among the others, 0 for all",
			set:  integer(func(o *Options) *int { return &o.TraceStore.AtMost }, 0, maxInt),
		},
		Flag{
			Name: "trace-param", Arg: "name", Many: true, Own: true, Help: "Parameter of requests that is stored with their traces",
			set: texts(func(o *Options) *[]string { return &o.TraceStore.Params }),
		},
		Flag{
			Name: "capture-bytes", Arg: argBytes, Default: strconv.Itoa(defaultCaptureBytes), Own: true,
			Help: "Memory for the tensors of requests that who has the dashboard's token asks for; without a token, or with 0, none are kept",
			set:  captureBytes(func(o *Options) *int64 { return &o.Capture.Bytes }, 0),
		},
		Flag{
			Name: "capture-request-bytes", Arg: argBytes, Default: strconv.Itoa(defaultCaptureRequest), Own: true,
			Help: "Largest memory for the tensors of one request; what goes beyond is known by type and shape",
			set:  captureBytes(func(o *Options) *int64 { return &o.Capture.RequestBytes }, 1),
		},
		Flag{
			Name: "capture-redact-tensor", Arg: "pattern", Many: true, Own: true, Help: "Tensors by whose names only type and shape are kept; * is any text, ? a character",
			set: texts(func(o *Options) *[]string { return &o.Capture.RedactTensors }),
		},
		Flag{
			Name: "capture-redact-model", Arg: "pattern", Many: true, Own: true, Help: "Models and ensembles, of what they make or read only type and shape are kept",
			set: texts(func(o *Options) *[]string { return &o.Capture.RedactModels }),
		},
	)
}

// tokenFile takes the token from a file.
func tokenFile(o *Options, value string) error {
	b, err := os.ReadFile(value)
	if err != nil {
		return fmt.Errorf("unable to read the dashboard's token: %w", err)
	}
	if o.Dashboard.Token = strings.TrimSpace(string(b)); o.Dashboard.Token == "" {
		return errors.New("the file of the dashboard's token is empty: " + value)
	}
	return nil
}

// storeBytes takes the size of the store.
func storeBytes(o *Options, value string) error {
	n, err := parseInt(value, 0, maxStoreBytes)
	if err == nil && n > 0 && n < minStoreBytes {
		return fmt.Errorf("invalid argument for --trace-store-bytes: %d, expected 0 or at least %d", n, minStoreBytes)
	}
	o.TraceStore.Bytes = n
	return err
}

// checkDashboard refuses a token that no header can carry.
func (o *Options) checkDashboard() error {
	if slices.ContainsFunc([]byte(o.Dashboard.Token), func(c byte) bool { return c < 0x21 || c > 0x7e }) {
		return errors.New("the dashboard's token has characters that a header cannot carry, expected printable ASCII without spaces")
	}
	return nil
}

// captureBytes takes an amount of memory for tensors.
func captureBytes(field func(*Options) *int64, least int64) setter {
	return func(o *Options, value string) (err error) {
		*field(o), err = parseInt(value, least, maxCaptureBytes)
		return err
	}
}
