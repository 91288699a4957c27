package cuda

import "github.com/tutti-server/tutti/core/status"

// HandleLen is the size of an IPC handle in bytes.
const HandleLen = 64

// Handle is the name of device memory for another process (CUipcMemHandle).
type Handle [HandleLen]byte

// ParseHandle returns the handle in b. It fails when b has another length.
func ParseHandle(b []byte) (Handle, error) {
	if len(b) != HandleLen {
		return Handle{}, status.Errorf(status.InvalidArg, "expected an IPC handle of %d bytes, found %d", HandleLen, len(b))
	}
	return Handle(b), nil
}
