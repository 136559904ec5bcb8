package demo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/testing/kit/harness"
)

// buildPages builds three versions of the demo's component, of which broken is bad.
func (d *demo) buildPages(ctx context.Context, publisher *harness.Publisher) (archives []string, err error) {
	if d.page, err = d.fleet.NewPage(); err != nil {
		return nil, err
	}
	for _, version := range []string{first, better, broken} {
		archive, err := d.page.Build(ctx, publisher, version, version == broken)
		if err != nil {
			return nil, err
		}
		archives = append(archives, archive)
	}
	return archives, nil
}

// installPage lists the component in the policy of the hosts, and installs it on the first.
func (d *demo) installPage(ctx context.Context) error {
	if err := d.page.List(ctx, d.server, 4, 1); err != nil {
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
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.page.URL(), http.NoBody)
	if err != nil {
		return err
	}
	answer, err := (&http.Client{Timeout: 5 * time.Second}).Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	if err == nil && string(body) != d.page.Text(version) {
		err = fmt.Errorf("%s serves %q, want %q", h.Name, body, d.page.Text(version))
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
		return c.UpgradeStatus != nil && *c.UpgradeStatus == fleet.UpgradeRolledBack && c.Status == "HEALTHY"
	})
	if err != nil {
		return err
	}
	d.say("ROLLBACK  page %s ends at once, and %s serves %s again", broken, d.hosts[0].Name, better)
	return nil
}
