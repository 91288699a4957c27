package cli

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

// The exit statuses of commands. serve, worker and tritonserver end with 1 after every error, as tritonserver does.
const (
	exitFailure     = 1 // an error without a status of its own; also findings and differences
	exitUsage       = 2
	exitNotFound    = 3
	exitRefused     = 4
	exitUnavailable = 5
	exitInterrupted = 130 // as shells report SIGINT
)

// exitHelp is the text about exit statuses in `tutti help`.
const exitHelp = "Exit status: 0, or 1 after an error, a finding or a difference, 2 wrong usage, 3 not found, 4 refused, 5 unavailable.\n"

// failure is an error with its exit status.
type failure struct {
	status int
	err    error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// exitStatus returns the exit status of a command that failed. It reads kinds and codes of errors, never their texts.
func exitStatus(err error) int {
	if err == nil {
		return 0
	}
	if _, ok := errors.AsType[*tutti.OptionError](err); ok {
		return exitFailure
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f.status
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	if e, ok := errors.AsType[*client.Error](err); ok {
		return refusalStatus(e.Status)
	}
	if e, ok := errors.AsType[*refusedError](err); ok {
		return httpStatus(e.status)
	}
	return localStatus(err)
}

// localStatus returns the exit status of an error of this machine.
func localStatus(err error) int {
	network, isNetwork := errors.AsType[net.Error](err)
	_, isSystem := errors.AsType[syscall.Errno](err)
	coded, isCoded := errors.AsType[*status.Error](err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return exitNotFound
	case errors.Is(err, fs.ErrPermission):
		return exitRefused
	case errors.Is(err, syscall.ECONNREFUSED), isNetwork && (network.Timeout() || !isSystem):
		return exitUnavailable
	case isCoded && coded.Code == status.NotFound:
		return exitNotFound
	case isCoded && coded.Code == status.Unavailable:
		return exitUnavailable
	}
	return exitFailure
}

// refusalStatus returns the exit status of a server's refusal, whose status is that of HTTP ("404 Not Found") or the code of
// gRPC ("NotFound").
func refusalStatus(text string) int {
	number, _, _ := strings.Cut(text, " ")
	if code, err := strconv.Atoi(number); err == nil {
		return httpStatus(code)
	}
	switch text {
	case codes.NotFound.String():
		return exitNotFound
	case codes.PermissionDenied.String(), codes.Unauthenticated.String():
		return exitRefused
	case codes.Unavailable.String(), codes.DeadlineExceeded.String(), codes.ResourceExhausted.String():
		return exitUnavailable
	}
	return exitFailure
}

func httpStatus(code int) int {
	switch code {
	case http.StatusNotFound, http.StatusGone:
		return exitNotFound
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		return exitRefused
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusTooManyRequests, http.StatusRequestTimeout:
		return exitUnavailable
	}
	return exitFailure
}

// explainModel returns the error of a request to a model with the exit status for one that the server does not have, or has and
// does not serve. Triton's status for such models is that of any wrong argument, so the index of the server is asked.
func explainModel(ctx context.Context, m client.Manager, model string, err error) error {
	list, found := modelEntries(ctx, m, model, err)
	switch {
	case list == nil:
		return err
	case len(found) == 0:
		return missingModel(list, model, err)
	case !slices.ContainsFunc(found, func(e infer.Entry) bool { return e.State == infer.Ready }):
		return &failure{exitUnavailable, err}
	}
	return err
}

// explainLoad is explainModel for a request to load a model, which the server does not serve yet.
func explainLoad(ctx context.Context, m client.Manager, model string, err error) error {
	if list, found := modelEntries(ctx, m, model, err); list != nil && len(found) == 0 {
		return missingModel(list, model, err)
	}
	return err
}

// modelEntries returns the index of a server that refused a request, and the versions of a model in it. list is nil if the
// server did not refuse, or gives no index.
func modelEntries(ctx context.Context, m client.Manager, model string, err error) (list, found []infer.Entry) {
	if _, refused := errors.AsType[*client.Error](err); !refused {
		return nil, nil
	}
	list, failed := m.Index(ctx)
	if failed != nil || list == nil {
		return nil, nil
	}
	for i := range list {
		if list[i].Name == model {
			found = append(found, list[i])
		}
	}
	return list, found
}

// missingModel returns the error for a model that is not in the index of a server, with the name that was probably meant.
func missingModel(list []infer.Entry, model string, err error) error {
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].Name
	}
	return &failure{exitNotFound, errorWith(err, meant("", model, names))}
}

// errorWith returns an error with a text after its own.
func errorWith(err error, after string) error {
	if after == "" {
		return err
	}
	return &suffixed{err, after}
}

// suffixed is an error with a text after its own.
type suffixed struct {
	err   error
	after string
}

func (s *suffixed) Error() string { return s.err.Error() + s.after }
func (s *suffixed) Unwrap() error { return s.err }
