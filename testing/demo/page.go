package demo

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/testing/harness"
)

// page is the component of the demo: a web server with one page, on the first host.
type page struct{ address string }

func (p page) url() string { return "http://" + p.address + "/" }

// text is the page of a version.
func (page) text(version string) string { return "page " + version + "\n" }

// buildPages builds three versions of the component, of which broken is bad.
func (d *demo) buildPages(ctx context.Context, publisher *harness.Publisher) (archives []string, err error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d.page = page{free.Addr().String()}
	if err := free.Close(); err != nil {
		return nil, err
	}
	dir := filepath.Join(d.fleet.Dir, "page")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	installed := filepath.Join(dir, "page.conf")
	description := fmt.Sprintf("name: page\nruntime: process\nsettings: {program: bin/page, args: [%q]}\nconfig-files: [{path: %q, from: page.conf}]\n", installed, installed)
	for _, version := range []string{first, better, broken} {
		conf := filepath.Join(dir, version+".conf")
		if err := os.WriteFile(conf, []byte(d.page.address+"\n"+d.page.text(version)), 0o600); err != nil {
			return nil, err
		}
		files := []string{"bin/page=" + d.fleet.Programs.Page, "page.conf=" + conf}
		if version == broken {
			files = append(files, "bin/broken="+conf)
		}
		archive, err := publisher.Component(ctx, "page", version, description, files...)
		if err != nil {
			return nil, err
		}
		archives = append(archives, archive)
	}
	return archives, nil
}

// installPage lists the component in the policy of the hosts, and installs it on the first.
func (d *demo) installPage(ctx context.Context) error {
	file := filepath.Join(d.fleet.Dir, "page", "components.yaml")
	text := fmt.Sprintf("components:\n  - name: page\n    runtime: process\n    health: {wait_seconds: 4, max_restarts: 1, checks: [{name: page, http: %q}]}\n", d.page.url())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	if _, err := d.server.CLI(ctx, "policies", "update", "default", "--components", file); err != nil {
		return err
	}
	if err := d.waitPage(ctx, "", func(adminapi.Component) bool { return true }); err != nil {
		return err
	}
	return d.upgradePage(ctx, first)
}

// upgradePage upgrades the component and waits until the host serves the version.
func (d *demo) upgradePage(ctx context.Context, version string) error {
	if err := d.orderPage(ctx, version); err != nil {
		return err
	}
	if err := d.waitPage(ctx, version, func(c adminapi.Component) bool { return c.UpgradeStartedAt == nil && c.UpgradeStatus == nil }); err != nil {
		return err
	}
	d.say("PAGE      %s serves %s", d.hosts[0].Name, version)
	return nil
}

func (d *demo) orderPage(ctx context.Context, version string) error {
	_, err := d.server.CLI(ctx, "components", "upgrade", "page", d.hosts[0].ID, "--version", version)
	return err
}

// waitPage waits until the first host reports a version of the component, and more; and then
// that it serves that version.
func (d *demo) waitPage(ctx context.Context, version string, ok func(adminapi.Component) bool) error {
	ctx, cancel := context.WithTimeout(ctx, waitFor)
	defer cancel()
	h := d.hosts[0]
	_, err := d.server.Wait(ctx, h.ID, fmt.Sprintf("%s runs page %s", h.Name, version), func(a adminapi.Agent) bool {
		for _, c := range a.Components {
			if c.Name != nil && *c.Name == "page" {
				return (version == "" || c.Version != nil && *c.Version == version) && ok(c)
			}
		}
		return false
	})
	if err != nil || version == "" {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.page.url(), http.NoBody)
	if err != nil {
		return err
	}
	answer, err := (&http.Client{Timeout: 5 * time.Second}).Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	if err == nil && string(body) != d.page.text(version) {
		err = fmt.Errorf("%s serves %q, want %q", h.Name, body, d.page.text(version))
	}
	return err
}

// autoPage upgrades the component to a good version and to a bad one.
func (d *demo) autoPage(ctx context.Context) error {
	if err := d.upgradePage(ctx, better); err != nil {
		return err
	}
	if err := d.orderPage(ctx, broken); err != nil {
		return err
	}
	err := d.waitPage(ctx, better, func(c adminapi.Component) bool {
		return c.UpgradeStatus != nil && *c.UpgradeStatus == adminapi.ComponentUpgradeRolledBack && c.Status == "HEALTHY"
	})
	if err != nil {
		return err
	}
	d.say("ROLLBACK  page %s ends at once, and %s serves %s again", broken, d.hosts[0].Name, better)
	return nil
}
