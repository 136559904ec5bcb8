package packagecmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

func newInspect() *cobra.Command {
	return reporting(&cobra.Command{
		Use:   "inspect ARCHIVE",
		Short: "Show the contents of a package, or why hosts would refuse it",
		Long: `Read and check a whole package as a host does before unpacking it. Whether the publishers
have signed it is not checked.`,
		Example: `  muster package inspect muster-agent-1.1.0-linux-amd64.tar.gz
  muster package inspect -o json muster-agent-1.1.0-linux-amd64.tar.gz`,
		Args: oneArchive,
	}, func(cmd *cobra.Command, args []string) (inspectReport, error) {
		c, err := inspect(cmd.Context(), cmd.ErrOrStderr(), args[0])
		if err != nil {
			return inspectReport{}, err
		}
		return newInspectReport(args[0], c), nil
	}, inspectReport.human)
}

func inspect(ctx context.Context, stderr io.Writer, archive string) (*install.Contents, error) {
	p := NewProgress(stderr, "reading "+filepath.Base(archive), 0)
	defer p.Done()
	c, err := install.InspectOn(ctx, progressDisk{p: p}, archive)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, hinted(err, "muster package build, or check the path of the archive")
	}
	return c, err
}

// inspectReport is the output of -o json. Scripts depend on its keys.
type inspectReport struct {
	Archive  string `json:"archive"`
	Size     int64  `json:"size"`
	SHA256   string `json:"sha256"`
	Version  string `json:"version"`
	Snapshot bool   `json:"snapshot"`
	Hash     string `json:"hash"`
	OS       string `json:"os,omitempty"`
	Arch     string `json:"arch,omitempty"`
	Home     string `json:"home"`
	Legacy   bool   `json:"legacy"` // no manifest.yaml in the archive
	// Component is absent from the package of an agent.
	Component    *manifest.Component `json:"component,omitempty"`
	Checks       []manifest.Check    `json:"checks,omitempty"`
	UnpackedSize int64               `json:"unpacked_size"`
	Files        []fileReport        `json:"files"`
}

type fileReport struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	Mode string `json:"mode"` // 0755 or 0644
}

func newInspectReport(archive string, c *install.Contents) inspectReport {
	p := c.Manifest.Package
	r := inspectReport{
		Archive: filepath.Base(archive), Size: c.Size, SHA256: c.SHA256,
		Version: p.Version, Snapshot: p.Snapshot, Hash: p.Hash, OS: p.OS, Arch: p.Arch,
		Component: p.Component, Checks: p.Checks,
		Home: p.Home(), Legacy: c.Legacy, UnpackedSize: c.UnpackedSize,
	}
	for _, f := range c.Files {
		r.Files = append(r.Files, fileReport{f.Name, f.Size, fmt.Sprintf("%04o", f.Mode)})
	}
	return r
}

func (r inspectReport) human(w io.Writer) {
	platform := "any"
	if r.OS != "" {
		platform = r.OS + "/" + cmp.Or(r.Arch, "any")
	}
	generation := "with a manifest"
	if r.Legacy {
		generation = "legacy: no manifest; version and hash are read from other files"
	}
	version := r.Version
	if r.Snapshot {
		version += "-SNAPSHOT"
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "%s\n", r.Archive)
	rows := slices.Concat([][2]string{
		{"version", version},
		{"hash", r.Hash},
		{"platform", platform},
	}, componentRows(r.Component), [][2]string{
		{"generation", generation},
		{"home", r.Home},
		{"archive", SizeText(r.Size) + ", sha256:" + r.SHA256},
		{"unpacked", fmt.Sprintf("%s in %s", SizeText(r.UnpackedSize), filesText(len(r.Files)))},
	})
	for _, check := range r.Checks {
		rows = append(rows, [2]string{"check", check.Name})
	}
	for _, row := range rows {
		fmt.Fprintf(tw, "  %s\t%s\n", row[0], row[1])
	}
	fmt.Fprintln(tw)
	for _, f := range r.Files {
		fmt.Fprintf(tw, "  %s\t%s\t%s\n", f.Mode, SizeText(f.Size), f.Name)
	}
	tw.Flush()
}

// WriteJSON prints a result for scripts.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
