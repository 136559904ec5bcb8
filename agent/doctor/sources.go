package doctor

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/agent/config"
	"github.com/muster-fleet/muster/agent/download"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/doctor"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/host/network"
	"github.com/muster-fleet/muster/packaging/pkg/install"
)

// maxArchives is how many packages of a folder are read, the newest: they are those that an upgrade
// asks for, and each takes about a second of the ten that a check has.
const maxArchives = 5

// sourceChecks are those of the places that packages come from before the server: the drop folder and
// the mirrors in agent.yml. A source that fails stops no upgrade, since the next one is asked, and so
// it is only a warning: the site then loads over its WAN.
func (h Host) sourceChecks() []doctor.Check {
	check := func(find func(context.Context) doctor.Finding) doctor.Check {
		return doctor.Check{Name: "source", Find: find}
	}
	checks := []doctor.Check{check(func(ctx context.Context) doctor.Finding {
		folder := layout.Path(h.Top, layout.DropDir)
		if _, err := h.Disk.Lstat(op, folder); errors.Is(err, fs.ErrNotExist) {
			return doctor.Finding{} // nobody has placed a package
		}
		return h.folderOfPackages(ctx, folder, folder)
	})}
	c, _ := config.Effective(h.Disk, h.Top) // the check of the settings says what is wrong with them
	for _, source := range c.Upgrade.Download.Sources {
		u, err := url.Parse(source)
		if err != nil {
			continue // such settings are not valid
		}
		checks = append(checks, check(func(ctx context.Context) doctor.Finding { return h.source(ctx, u, c.Network) }))
	}
	return checks
}

// correct mends a source of agent.yml.
const correct = "correct or remove it in upgrade.download.sources of agent.yml"

func (h Host) source(ctx context.Context, u *url.URL, settings network.Settings) doctor.Finding {
	name := download.DisplayName(u)
	if u.Scheme != "file" {
		return mirror(ctx, u, name, settings)
	}
	folder, err := download.FolderOf(u)
	if err != nil {
		return doctor.Doubt(correct, "%s: %v", name, err)
	}
	return h.folderOfPackages(ctx, folder, name)
}

// folderOfPackages reads the newest packages in a folder.
func (h Host) folderOfPackages(ctx context.Context, folder, name string) doctor.Finding {
	entries, err := h.Disk.ReadDir(op, folder)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return forbidden(folder)
	case err != nil:
		return doctor.Doubt(correct+", or make the folder", "%s cannot be read, and packages come from the next source: %v", name, err)
	}
	type archive struct {
		path string
		at   time.Time
	}
	var found []archive
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		if fi, err := disk.Stat(h.Disk, op, path); err == nil && fi.Mode().IsRegular() && isArchive(e.Name()) {
			found = append(found, archive{path, fi.ModTime()})
		}
	}
	slices.SortFunc(found, func(a, b archive) int { return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.path, b.path)) })
	found = found[:min(len(found), maxArchives)]
	var broken, gone []string
	for _, a := range found {
		_, err := install.InspectOn(ctx, h.Disk, a.path)
		switch {
		case err == nil || errors.Is(err, fs.ErrNotExist): // it was taken away meanwhile
		case errors.Is(err, fs.ErrPermission):
			return forbidden(a.path)
		case ctx.Err() != nil:
			return doctor.Doubt("look for a slow disk or mount: sudo dmesg | tail", "the packages in %s could not be read in time", name)
		default:
			broken = append(broken, err.Error()) // it names the package
			gone = append(gone, a.path)
		}
	}
	if len(broken) > 0 {
		return doctor.Doubt("place it again, or: sudo rm "+strings.Join(gone, " "), "a package in %s is broken, and the next source is asked for it: %s", name, strings.Join(broken, "; "))
	}
	return doctor.Good("%s: none of its %d newest packages is broken", name, len(found))
}

// isArchive reports whether a file has the name of a package for this machine.
func isArchive(name string) bool {
	rest, ok := strings.CutSuffix(name, ".tar.gz")
	if !ok {
		rest, ok = strings.CutSuffix(name, ".zip")
	}
	return ok && strings.HasSuffix(rest, "-"+runtime.GOOS+"-"+runtime.GOARCH)
}

// mirror asks a mirror for its folder. Whatever it says of that, which it need not list, it answers.
func mirror(ctx context.Context, u *url.URL, name string, settings network.Settings) doctor.Finding {
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, u.String(), nil)
	if err != nil {
		return doctor.Doubt(correct, "%s: is no URL", name)
	}
	transport, err := settings.Transport()
	if err != nil {
		return doctor.Doubt("correct network.ca_pem of agent.yml", "%v", err)
	}
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	answer, err := client.Do(r)
	var asked *url.Error
	if errors.As(err, &asked) {
		err = asked.Err // without the URL, which may hold a password
	}
	mend := "curl --head " + name + "; " + correct
	switch {
	case err != nil && ctx.Err() != nil:
		return doctor.Doubt(mend, "%s does not answer, and packages come from the next source", name)
	case err != nil:
		return doctor.Doubt(mend, "%s cannot be reached, and packages come from the next source: %v", name, err)
	}
	answer.Body.Close()
	if answer.StatusCode >= http.StatusInternalServerError || answer.StatusCode == http.StatusProxyAuthRequired {
		return doctor.Doubt(mend, "%s answers %s, and packages come from the next source", name, answer.Status)
	}
	return doctor.Good("%s answers", name)
}
