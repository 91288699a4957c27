package admin

import (
	"encoding/base64"
	"net/http"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
	"github.com/tutti-server/tutti/internal/shm"
)

// systemRegion and cudaRegion are regions with the members in the protocol's order.
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

// SystemStatus responds with the POSIX regions, or the one in the path.
func (s *Service) SystemStatus(_ http.ResponseWriter, _ *http.Request, p transport.Path) (any, error) {
	return s.regions(shm.System, p.Name, func(r *shm.Region) any { return systemRegion{r.Name, r.Key, r.Offset, r.Size} })
}

// CUDAStatus responds with the device regions, or the one in the path.
func (s *Service) CUDAStatus(_ http.ResponseWriter, _ *http.Request, p transport.Path) (any, error) {
	return s.regions(shm.CUDA, p.Name, func(r *shm.Region) any { return cudaRegion{r.Name, r.Device, r.Size} })
}

func (s *Service) regions(kind shm.Kind, name string, show func(*shm.Region) any) (any, error) {
	regions, err := s.set.Regions.Status(kind, name)
	shown := make([]any, len(regions))
	for i := range regions {
		shown[i] = show(&regions[i])
	}
	return shown, err
}

// SystemUnregister unregisters the POSIX region in the path, or all.
func (s *Service) SystemUnregister(_ http.ResponseWriter, _ *http.Request, p transport.Path) (any, error) {
	return nil, s.set.Regions.Unregister(shm.System, p.Name)
}

// CUDAUnregister unregisters the device region in the path, or all.
func (s *Service) CUDAUnregister(_ http.ResponseWriter, _ *http.Request, p transport.Path) (any, error) {
	return nil, s.set.Regions.Unregister(shm.CUDA, p.Name)
}

// SystemRegister registers a POSIX region.
func (s *Service) SystemRegister(w http.ResponseWriter, r *http.Request, p transport.Path) (any, error) {
	g, err := s.readRegistration(w, r, shm.System, p.Name)
	if err != nil {
		return nil, err
	}
	return nil, s.set.Regions.RegisterSystem(p.Name, g.key, g.offset, g.size)
}

// CUDARegister registers a device region.
func (s *Service) CUDARegister(w http.ResponseWriter, r *http.Request, p transport.Path) (any, error) {
	g, err := s.readRegistration(w, r, shm.CUDA, p.Name)
	if err != nil {
		return nil, err
	}
	return nil, s.set.Regions.RegisterCUDA(p.Name, g.handle, g.device, g.size)
}

// registration is the content of a register request: key, offset and size of a POSIX region; handle, device and size of a device
// region.
type registration struct {
	key    string
	handle []byte
	device int64
	offset uint64
	size   uint64
}

// readRegistration reads a register request. While client regions are disabled it fails whatever the request has.
func (s *Service) readRegistration(w http.ResponseWriter, r *http.Request, kind shm.Kind, name string) (g registration, err error) {
	if err := s.set.Regions.Check(); err != nil {
		return g, err
	}
	if name == "" {
		return g, status.Errorf(status.InvalidArg, "'region name' is necessary to register %s shared memory region", kind)
	}
	read, required := (*registration).readSystem, []string{"key", "byte_size"}
	if kind == shm.CUDA {
		read, required = (*registration).readCUDA, []string{"raw_handle", "byte_size", "device_id"}
	}
	seen := map[string]bool{}
	err = s.readMembers(w, r, false, func(p *jsonwire.Parser, name string) error {
		seen[name] = true
		return read(&g, p, name)
	})
	if err != nil {
		return g, err
	}
	for _, field := range required {
		if !seen[field] {
			return g, status.Errorf(status.InvalidArg, "Shared memory register request has no '%s' field", field)
		}
	}
	return g, nil
}

// readSystem reads a member of a request to register a POSIX region.
func (g *registration) readSystem(p *jsonwire.Parser, name string) (err error) {
	switch name {
	case "key":
		var text []byte
		text, err = p.Text(name)
		g.key = string(text)
	case "offset":
		g.offset, err = p.Unsigned(name)
	case "byte_size":
		g.size, err = p.Unsigned(name)
	default:
		err = p.Skip()
	}
	return err
}

// readCUDA reads a member of a request to register a device region.
func (g *registration) readCUDA(p *jsonwire.Parser, name string) (err error) {
	switch name {
	case "raw_handle":
		err = g.readHandle(p)
	case "byte_size":
		g.size, err = p.Unsigned(name)
	case "device_id":
		g.device, err = p.Signed(name)
	default:
		err = p.Skip()
	}
	return err
}

// handleSize is the size of a cudaIpcMemHandle_t.
const handleSize = 64

// readHandle reads the handle of device memory: an object with the base64 of its bytes, {"b64":"..."}.
func (g *registration) readHandle(p *jsonwire.Parser) error {
	err := p.Object(func(name []byte) error {
		if string(name) != "b64" {
			return p.Skip()
		}
		text, err := p.Text("b64")
		if err != nil {
			return err
		}
		if g.handle, err = base64.StdEncoding.DecodeString(string(text)); err != nil {
			g.handle = nil // its length is checked below
		}
		return nil
	})
	if err == nil && len(g.handle) != handleSize {
		err = status.Errorf(status.InvalidArg, "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t")
	}
	return err
}
