package options

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Dashboard configures the dashboard under /ui/.
type Dashboard struct {
	Enabled bool
	// Token allows clients that send it to change things; the dashboard is read-only if it is empty.
	Token string
}

// TraceStore configures the store of traces of recent requests.
type TraceStore struct {
	// Bytes is the size of the store, 0 for none.
	Bytes int64
	// Every N stores one of N requests that neither fail nor are slow, 0 for none. AtMost is the most requests
	// examined in a second.
	Every, AtMost int
	// Params names the request parameters that are stored with a trace.
	Params []string
}

// Capture configures the capture of request tensors.
type Capture struct {
	// Bytes is the most memory for all captured requests, 0 to disable capturing; RequestBytes bounds the contents
	// of one request.
	Bytes, RequestBytes int64
	// RedactTensors and RedactModels are patterns of tensors and models whose contents are never captured.
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
			Name: "dashboard-token", Arg: "text", Own: true, Help: "Token with which clients of the dashboard may change things; without one the dashboard is read-only",
			set: text(func(o *Options) *string { return &o.Dashboard.Token }),
		},
		Flag{Name: "dashboard-token-file", Arg: argFile, Own: true, Help: "File with the token, which then is not visible in lists of processes", set: tokenFile},
		Flag{
			Name: "trace-store-bytes", Arg: argBytes, Default: strconv.Itoa(defaultStoreBytes), Own: true, set: storeBytes,
			Help: "Memory for the traces of recent requests: at least 1048576, or 0 for none",
		},
		Flag{
			Name: "trace-store-every", Arg: argNumber, Default: strconv.Itoa(defaultStoreEvery), Own: true,
			Help: "Store one of this number of requests that neither fail nor are slow; 0 stores none of them",
			set:  integer(func(o *Options) *int { return &o.TraceStore.Every }, 0, maxInt),
		},
		Flag{
			Name: "trace-store-rate", Arg: argNumber, Default: strconv.Itoa(defaultStoreRate), Own: true,
			Help: "Most requests to examine in a second; of further ones only failures are examined; 0 for no bound",
			set:  integer(func(o *Options) *int { return &o.TraceStore.AtMost }, 0, maxInt),
		},
		Flag{
			Name: "trace-param", Arg: "name", Many: true, Own: true, Help: "Request parameter to store with traces",
			set: texts(func(o *Options) *[]string { return &o.TraceStore.Params }),
		},
		Flag{
			Name: "capture-bytes", Arg: argBytes, Default: strconv.Itoa(defaultCaptureBytes), Own: true,
			Help: "Memory for captured tensors, which need the dashboard's token; without a token, or with 0, no tensors can be captured",
			set:  captureBytes(func(o *Options) *int64 { return &o.Capture.Bytes }, 0),
		},
		Flag{
			Name: "capture-request-bytes", Arg: argBytes, Default: strconv.Itoa(defaultCaptureRequest), Own: true,
			Help: "Most memory for the tensors of one request; of further tensors only type and shape are captured",
			set:  captureBytes(func(o *Options) *int64 { return &o.Capture.RequestBytes }, 1),
		},
		Flag{
			Name: "capture-redact-tensor", Arg: "pattern", Many: true, Own: true, Help: "Names of tensors of which only type and shape are captured; * matches any text, ? a character",
			set: texts(func(o *Options) *[]string { return &o.Capture.RedactTensors }),
		},
		Flag{
			Name: "capture-redact-model", Arg: "pattern", Many: true, Own: true, Help: "Models and ensembles of whose inputs and outputs only type and shape are captured; * and ? as above",
			set: texts(func(o *Options) *[]string { return &o.Capture.RedactModels }),
		},
	)
}

// tokenFile reads the token from a file.
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

// storeBytes sets the size of the store.
func storeBytes(o *Options, value string) error {
	n, err := parseInt(value, 0, maxStoreBytes)
	if err == nil && n > 0 && n < minStoreBytes {
		return fmt.Errorf("invalid argument for --trace-store-bytes: %d, expected 0 or at least %d", n, minStoreBytes)
	}
	o.TraceStore.Bytes = n
	return err
}

// checkDashboard refuses a token that a header cannot carry.
func (o *Options) checkDashboard() error {
	if slices.ContainsFunc([]byte(o.Dashboard.Token), func(c byte) bool { return c < 0x21 || c > 0x7e }) {
		return errors.New("the dashboard's token has characters that a header cannot carry, expected printable ASCII without spaces")
	}
	return nil
}

// captureBytes returns the setter of an amount of memory for tensors.
func captureBytes(field func(*Options) *int64, least int64) setter {
	return func(o *Options, value string) (err error) {
		*field(o), err = parseInt(value, least, maxCaptureBytes)
		return err
	}
}
