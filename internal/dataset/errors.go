package dataset

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/cloud"
	"github.com/tutti-server/tutti/internal/diskfull"
)

// ErrChanged is wrapped by the error for a file that is another one than when the dataset was cut, or is gone.
var ErrChanged = errors.New("changed since the dataset was cut")

// changedError names the file that changed.
func changedError(name, was, is string) error {
	return status.Errorf(status.InvalidArg, "file '%s' %w: it was %s and is %s; submit the job again to read it as it is now", name, ErrChanged, was, is)
}

// isChanged reports whether err tells that a file changed.
func isChanged(err error) bool { return errors.Is(err, ErrChanged) || errors.Is(err, cloud.ErrChanged) }

// localError gives the failure of an operation on a local file its code: NotFound, or Unavailable for what may pass
// without a change of the job, for example a full disk, missing permissions or a network file system that is away.
func localError(what, path string, err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return status.ErrCancelled
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return status.Errorf(status.NotFound, "%s '%s': %w", what, path, err)
	case errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ELOOP):
		return status.Errorf(status.InvalidArg, "%s '%s': %w", what, path, err)
	}
	if full := diskfull.Explain(err, path, "write the results to another disk or a bucket"); diskfull.Is(err) {
		return status.Prefixf(full, "%s '%s': ", what, path)
	}
	return status.Reasonf(status.StorageUnavailable, "%s '%s': %w", what, path, err)
}

// bucketError turns refused credentials into Unavailable: they may have expired, and are renewed without the job.
func bucketError(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, cloud.ErrDenied) {
		return &status.Error{Code: status.Unavailable, Reason: status.StorageUnavailable, Msg: err.Error() + "; check the credentials of the bucket", Err: err}
	}
	return err
}
