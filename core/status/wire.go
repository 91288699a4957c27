package status

import (
	"net/http"

	"google.golang.org/grpc/codes"
)

var httpStatus = [numCodes]int{
	Unknown:       http.StatusBadRequest,
	Internal:      http.StatusInternalServerError,
	NotFound:      http.StatusNotFound,
	InvalidArg:    http.StatusBadRequest,
	Unavailable:   http.StatusServiceUnavailable,
	Unsupported:   http.StatusNotImplemented,
	AlreadyExists: http.StatusBadRequest,
	Cancelled:     http.StatusBadRequest,
}

var grpcCode = [numCodes]codes.Code{
	Unknown:       codes.Unknown,
	Internal:      codes.Internal,
	NotFound:      codes.NotFound,
	InvalidArg:    codes.InvalidArgument,
	Unavailable:   codes.Unavailable,
	Unsupported:   codes.Unimplemented,
	AlreadyExists: codes.AlreadyExists,
	Cancelled:     codes.Canceled,
}

// HTTP returns the HTTP status for errors of code c, for example 400 for InvalidArg.
func (c Code) HTTP() int {
	if c < numCodes {
		return httpStatus[c]
	}
	return http.StatusInternalServerError
}

// GRPC returns the gRPC status code for errors of code c.
func (c Code) GRPC() codes.Code {
	if c < numCodes {
		return grpcCode[c]
	}
	return codes.Internal
}
