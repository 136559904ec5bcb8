package packagecmd

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
)

func newKeysShow(remote Remote) *cobra.Command {
	var server bool
	cmd := &cobra.Command{
		Use:   "show FILE…",
		Short: "Show a signed file: its contents, its signatures and those missing",
		Long: `Show root and targets files. The root before a file decides whose signatures count: the
command looks for it in the folder of the file, or where --root says. With --server it
shows what the server has published and whether the server can sign.`,
		Example: `  muster package keys show release/2.root.json
  muster package keys show --server`,
		Args: func(_ *cobra.Command, args []string) error {
			if server == (len(args) > 0) {
				return errors.New("want signed files such as 1.root.json, or --server")
			}
			return nil
		},
	}
	root := cmd.Flags().String("root", "", "folder of your signed files, or one root file (default: the file's folder)")
	cmd.Flags().BoolVar(&server, "server", false, "show what the server has published")
	files := reporting(cmd, func(_ *cobra.Command, args []string) (reports []fileStatus, err error) {
		for _, path := range args {
			r, err := statusOf(path, *root)
			if err != nil {
				return nil, err
			}
			reports = append(reports, r)
		}
		return reports, nil
	}, func(reports []fileStatus, w io.Writer) {
		for _, r := range reports {
			r.human(w)
		}
	}).RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if server {
			return remote.Show(cmd.Context(), cmd.OutOrStdout(), cmd.Flags().Lookup("output").Value.String() == outputJSON)
		}
		return files(cmd, args)
	}
	return cmd
}

// fileStatus is the output of show -o json for a file. Scripts depend on its keys.
type fileStatus struct {
	File    string    `json:"file"`
	Role    tuf.Role  `json:"role"`
	Version int64     `json:"version"`
	Expires time.Time `json:"expires"`
	// Complete reports whether hosts accept the file. Signatures says who has signed it.
	Complete   bool   `json:"complete"`
	Signatures string `json:"signatures"`
	// Digest is the value for --trust-root, set for a root.
	Digest  string       `json:"digest,omitempty"`
	Keys    []keyStatus  `json:"keys,omitempty"`
	Targets []tuf.Target `json:"targets,omitempty"`
	tuf.Limits
	// Components are the limits of each component.
	Components map[string]tuf.Limits `json:"components,omitempty"`
}

type keyStatus struct {
	Role      tuf.Role `json:"role"`
	Threshold int      `json:"threshold"`
	Name      string   `json:"name,omitempty"`
	ID        string   `json:"id"`
	PublicKey string   `json:"public_key"`
}

func statusOf(path, root string) (fileStatus, error) {
	f, err := readSignedFile(path)
	if err != nil {
		return fileStatus{}, err
	}
	r := fileStatus{File: path, Role: f.Role, Version: f.Version, Expires: f.Expires}
	r.Complete, r.Signatures = progressOf(f, path, root)
	switch f.Role {
	case tuf.RoleRoot:
		spec, err := tuf.SpecOf(f.data)
		if err != nil {
			return r, err
		}
		r.Digest, r.Keys = tuf.Digest(f.data), keysIn(spec)
	case tuf.RoleTargets:
		contents, err := tuf.ContentsOf(f.data)
		if err != nil {
			return r, err
		}
		r.Limits, r.Targets, r.Components = contents.Limits, contents.Targets, contents.Components
	default:
	}
	return r, nil
}

// progressOf describes who has signed a file, or why that is unknown.
func progressOf(f signedFile, path, root string) (done bool, text string) {
	s, err := openDirOf(path, root)
	if err != nil {
		return false, "unknown: " + firstLine(err)
	}
	trusted, err := s.trustedFor(f)
	if err != nil {
		return false, "unknown: " + firstLine(err)
	}
	p, err := tuf.Signatures(f.data, trusted)
	if err != nil {
		return false, "unknown: " + err.Error()
	}
	return p.Done(), p.String()
}

func keysIn(spec tuf.RootSpec) []keyStatus {
	var all []keyStatus
	for _, r := range []struct {
		role tuf.Role
		tuf.Signers
	}{
		{tuf.RoleRoot, spec.Root},
		{tuf.RoleTargets, spec.Targets},
		{tuf.RoleSnapshot, tuf.Signers{Keys: []tuf.PublicKey{spec.Snapshot}, Threshold: 1}},
		{tuf.RoleTimestamp, tuf.Signers{Keys: []tuf.PublicKey{spec.Timestamp}, Threshold: 1}},
	} {
		for _, k := range r.Keys {
			all = append(all, keyStatus{r.role, r.Threshold, k.Name, k.ID(), k.String()})
		}
	}
	return all
}

func (r fileStatus) human(w io.Writer) {
	fmt.Fprintf(w, "%s\n  %s\n  expires %s\n", r.File, r.Signatures, r.Expires.Format(time.DateOnly))
	if r.Digest != "" {
		fmt.Fprintf(w, "  --trust-root %s\n", r.Digest)
	}
	var last tuf.Role
	for _, k := range r.Keys {
		if k.Role != last {
			fmt.Fprintf(w, "  %s: needs %d of these keys\n", k.Role, k.Threshold)
			last = k.Role
		}
		fmt.Fprintf(w, "    %s  %s\n", k.ID[:16], k.Name)
	}
	if r.Role == tuf.RoleTargets {
		for _, line := range describe(tuf.Contents{Limits: r.Limits, Targets: r.Targets, Components: r.Components}) {
			fmt.Fprintf(w, "  %s\n", line)
		}
	}
}

// describe returns the contents of a targets file as lines, which difference can compare.
func describe(c tuf.Contents) []string {
	lines := describeLimits("", c.Limits)
	for _, name := range slices.Sorted(maps.Keys(c.Components)) {
		lines = append(lines, describeLimits("component "+name+": ", c.Components[name])...)
	}
	for _, t := range c.Targets {
		lines = append(lines, fmt.Sprintf("%s  %s  sha512 %s…", t.FileName(), SizeText(t.Size), t.SHA512[:16]))
	}
	return lines
}

func describeLimits(of string, l tuf.Limits) []string {
	lines := []string{}
	if l.Floor != "" {
		lines = append(lines, of+"floor "+l.Floor)
	}
	for _, d := range l.Downgrades {
		lines = append(lines, fmt.Sprintf("%shosts may go back to %s until %s", of, d.Version, d.Until.UTC().Format(time.RFC3339)))
	}
	return lines
}

// openDirOf opens root or, if it is empty, the folder of the file at path.
func openDirOf(path, root string) (*metadataDir, error) {
	if root == "" {
		root = filepath.Dir(path)
	}
	return openMetadataDir(root)
}
