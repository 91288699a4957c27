package httpapi

import (
	"encoding/base64"
	"net/http"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/shm"
)

// systemRegion and cudaRegion are regions in the protocol's order of members.
type (
	systemRegion struct {
		Name   string `json:"name"`
		Key    string `json:"key"`
		Offset uint64 `json:"offset"`
		Size   uint64 `json:"byte_size"`
	}
	cudaRegion struct {
		Name   string `json:"name"`
		Device int64  `json:"device_id"`
		Size   uint64 `json:"byte_size"`
	}
)

func (s *Server) systemStatus(w http.ResponseWriter, _ *http.Request, t target) {
	regions, err := s.regions.Status(shm.System, t.name)
	if err != nil {
		writeError(w, err)
		return
	}
	shown := make([]systemRegion, len(regions))
	for i, r := range regions {
		shown[i] = systemRegion{r.Name, r.Key, r.Offset, r.Size}
	}
	writeJSON(w, shown)
}

func (s *Server) cudaStatus(w http.ResponseWriter, _ *http.Request, t target) {
	regions, err := s.regions.Status(shm.CUDA, t.name)
	if err != nil {
		writeError(w, err)
		return
	}
	shown := make([]cudaRegion, len(regions))
	for i, r := range regions {
		shown[i] = cudaRegion{r.Name, r.Device, r.Size}
	}
	writeJSON(w, shown)
}

func (s *Server) systemUnregister(w http.ResponseWriter, _ *http.Request, t target) {
	done(w, s.regions.Unregister(shm.System, t.name))
}

func (s *Server) cudaUnregister(w http.ResponseWriter, _ *http.Request, t target) {
	done(w, s.regions.Unregister(shm.CUDA, t.name))
}

// done answers a request whose success has nothing to tell.
func done(w http.ResponseWriter, err error) {
	if err != nil {
		writeError(w, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (s *Server) systemRegister(w http.ResponseWriter, r *http.Request, t target) {
	g, err := s.registration(w, r, shm.System, t.name)
	if err == nil {
		err = s.regions.RegisterSystem(t.name, g.key, g.offset, g.size)
	}
	done(w, err)
}

func (s *Server) cudaRegister(w http.ResponseWriter, r *http.Request, t target) {
	g, err := s.registration(w, r, shm.CUDA, t.name)
	if err == nil {
		err = s.regions.RegisterCUDA(t.name, g.handle, g.device, g.size)
	}
	done(w, err)
}

// registration is what a register request says.
type registration struct {
	key    string
	handle []byte
	device int64
	offset uint64
	size   uint64
	seen   map[string]bool
}

// registration reads a register request. While client regions are not allowed it
// says so, whatever the request.
func (s *Server) registration(w http.ResponseWriter, r *http.Request, kind shm.Kind, name string) (g registration, err error) {
	if err := s.regions.Check(); err != nil {
		return g, err
	}
	if name == "" {
		return g, status.Errorf(status.InvalidArg, "'region name' is necessary to register %s shared memory region", kind)
	}
	g.seen = map[string]bool{}
	read, required := (*exchange).systemField, []string{"key", "byte_size"}
	if kind == shm.CUDA {
		read, required = (*exchange).cudaField, []string{"raw_handle", "byte_size", "device_id"}
	}
	err = s.control(w, r, false, func(x *exchange, key string) error {
		g.seen[key] = true
		return read(x, &g, key)
	})
	if err != nil {
		return g, err
	}
	for _, field := range required {
		if !g.seen[field] {
			return g, status.Errorf(status.InvalidArg, "Shared memory register request has no '%s' field", field)
		}
	}
	return g, nil
}

// systemField reads one member of a request to register a POSIX object.
func (x *exchange) systemField(g *registration, key string) (err error) {
	switch key {
	case "key":
		var text []byte
		text, err = x.text(key)
		g.key = string(text)
	case "offset":
		g.offset, err = x.unsigned(key)
	case "byte_size":
		g.size, err = x.unsigned(key)
	default:
		err = x.p.skip()
	}
	return err
}

// cudaField reads one member of a request to register device memory.
func (x *exchange) cudaField(g *registration, key string) (err error) {
	switch key {
	case "raw_handle":
		err = x.rawHandle(g)
	case "byte_size":
		g.size, err = x.unsigned(key)
	case "device_id":
		g.device, err = x.signed(key)
	default:
		err = x.p.skip()
	}
	return err
}

// signed reads an integer.
func (x *exchange) signed(field string) (int64, error) {
	n, err := x.p.number()
	if err == nil {
		if i, ok := n.signed(); ok {
			return i, nil
		}
	}
	return 0, unable(field, notSigned)
}

// handleSize is the size of a cudaIpcMemHandle_t.
const handleSize = 64

// rawHandle reads the handle of device memory, which is base64 in an object of its own.
func (x *exchange) rawHandle(g *registration) error {
	err := x.members(func(key string) error {
		if key != "b64" {
			return x.p.skip()
		}
		text, err := x.text(key)
		if err != nil {
			return err
		}
		g.handle = make([]byte, base64.StdEncoding.DecodedLen(len(text)))
		n, err := base64.StdEncoding.Decode(g.handle, text)
		if err != nil {
			n = 0
		}
		g.handle = g.handle[:n]
		return nil
	})
	if err == nil && len(g.handle) != handleSize {
		err = status.Errorf(status.InvalidArg, "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t")
	}
	return err
}
