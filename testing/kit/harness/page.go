package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/muster-fleet/muster/testing/kit/port"
)

// Page is a component that runs as a process: a web server with one page, which shows the
// version that runs. Its name is page. One host of a fleet can install it.
type Page struct {
	fleet   *Fleet
	address string
}

// NewPage returns a component with a free port of this machine.
func (f *Fleet) NewPage() (*Page, error) {
	address, err := port.Address()
	return &Page{f, address}, err
}

// URL is where the page is served.
func (p *Page) URL() string { return "http://" + p.address + "/" }

// Text is the page of a version.
func (*Page) Text(version string) string { return "page " + version + "\n" }

// Build builds and signs a package of a version, which ends at once if it is broken.
func (p *Page) Build(ctx context.Context, publisher *Publisher, version string, broken bool) (archive string, err error) {
	conf, installed := p.path(version+".conf"), p.path("page.conf")
	if err := p.write(conf, p.address+"\n"+p.Text(version)); err != nil {
		return "", err
	}
	description := fmt.Sprintf("name: page\nruntime: process\nsettings: {program: bin/page, args: [%q]}\nconfig-files: [{path: %q, from: page.conf}]\n", installed, installed)
	files := []string{"bin/page=" + p.fleet.Programs.Page, "page.conf=" + conf}
	if broken {
		files = append(files, "bin/broken="+conf)
	}
	return publisher.Component(ctx, "page", version, description, files...)
}

// List lists the component in the default policy: its new versions are observed for some
// seconds, and may not be restarted more often than maxRestarts.
func (p *Page) List(ctx context.Context, s *Server, waitSeconds, maxRestarts int) error {
	file := p.path("components.yaml")
	text := fmt.Sprintf("components:\n  - name: page\n    runtime: process\n    health: {wait_seconds: %d, max_restarts: %d, checks: [{name: page, http: %q}]}\n", waitSeconds, maxRestarts, p.URL())
	if err := p.write(file, text); err != nil {
		return err
	}
	_, err := s.CLI(ctx, "policies", "update", "default", "--components", file)
	return err
}

func (p *Page) path(name string) string { return filepath.Join(p.fleet.Dir, "page", name) }

func (*Page) write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}
