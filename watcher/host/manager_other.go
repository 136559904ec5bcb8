//go:build !windows

package host

import "github.com/kardianos/service"

func serviceManager(name string) (Manager, error) {
	return service.New(notAService{}, &service.Config{Name: name})
}

// notAService satisfies the library, which only controls a service by name here.
type notAService struct{}

func (notAService) Start(service.Service) error { return nil }
func (notAService) Stop(service.Service) error  { return nil }
