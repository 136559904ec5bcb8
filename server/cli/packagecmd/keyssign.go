package packagecmd

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
)

// signing is the result of keys sign.
type signing struct {
	Signed
	changes []string // in the file
}

func (s signing) human(w io.Writer) {
	for _, c := range s.changes {
		fmt.Fprintf(w, "  %s\n", c)
	}
	s.Human(w)
}

func newKeysSign() *cobra.Command {
	var password passwordSource
	cmd := &cobra.Command{
		Use:   "sign FILE --key KEY",
		Short: "Add a signature to a root or targets file",
		Long: `Print what the file changes, and add your signature to it in place. Check the changes
before you pass the file on: your signature allows hosts to install what it names.
Several people sign one after the other, or each sign a copy, and merge the copies.`,
		Example: `  muster package keys sign release/2.root.json --key ann.key
  muster package keys sign 7.targets.json --key bob.key --root release`,
		Args: oneSigned,
	}
	keys := cmd.Flags().StringArray("key", nil, "private key file to sign with; repeatable")
	root := cmd.Flags().String("root", "", "folder of your signed files, or one root file (default: the file's folder)")
	password.addFlag(cmd)
	_ = cmd.MarkFlagFilename("key", "key")
	return reporting(cmd, func(cmd *cobra.Command, args []string) (signing, error) {
		if len(*keys) == 0 {
			return signing{}, hinted(errors.New("--key is missing"), "muster package keys sign %s --key ann.key", args[0])
		}
		return signFile(cmd, args[0], *root, *keys, password)
	}, signing.human)
}

func oneSigned(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return hinted(fmt.Errorf("%d files are named, want one", len(args)), "%s 2.root.json", cmd.CommandPath())
}

func signFile(cmd *cobra.Command, path, root string, keyFiles []string, password passwordSource) (out signing, err error) {
	f, err := readSignedFile(path)
	if err != nil {
		return out, err
	}
	s, err := openDirOf(path, root)
	if err != nil {
		return out, err
	}
	trusted, err := s.trustedFor(f)
	if err != nil {
		return out, err
	}
	if out.changes, err = changesOf(f, s); err != nil {
		return out, err
	}
	keys, err := readSigners(cmd, keyFiles, password)
	if err != nil {
		return out, err
	}
	data, err := signWith(f.data, trusted, keys)
	if err != nil {
		return out, err
	}
	progress, err := tuf.Signatures(data, trusted)
	if err != nil {
		return out, err
	}
	out.Signed = Signed{File: path, Version: f.Version, Changed: true, Expires: f.Expires, Signatures: progress.String()}
	return out, writeSigned(path, data)
}

// changesOf compares a file with the version before it, as far as the folder has it.
func changesOf(f signedFile, s *metadataDir) ([]string, error) {
	previous := s.targets
	if f.Role == tuf.RoleRoot {
		previous, _ = s.rootBefore(f.Version) // without it, everything is new
	}
	after, err := contentsOf(f.Role, f.data)
	if err != nil || previous == nil {
		return difference(nil, after), err
	}
	was, err := contentsOf(f.Role, previous)
	return difference(was, after), err
}

// contentsOf returns the contents of a root or targets file as lines.
func contentsOf(role tuf.Role, data []byte) ([]string, error) {
	if role == tuf.RoleRoot {
		spec, err := tuf.SpecOf(data)
		if err != nil {
			return nil, err
		}
		return describeRoot(spec), nil
	}
	contents, err := tuf.ContentsOf(data)
	if err != nil {
		return nil, err
	}
	return describe(contents), nil
}

func describeRoot(spec tuf.RootSpec) []string {
	lines := []string{
		fmt.Sprintf("root: %d must sign", spec.Root.Threshold), fmt.Sprintf("targets: %d must sign", spec.Targets.Threshold),
		"expires " + spec.Expires.Format(time.DateOnly),
	}
	for _, k := range keysIn(spec) {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s key %s %s", k.Role, k.ID[:16], k.Name)))
	}
	return lines
}

// difference returns the lines that only before (-) or only after (+) has.
func difference(before, after []string) []string {
	var out []string
	for _, line := range before {
		if !slices.Contains(after, line) {
			out = append(out, "- "+line)
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) {
			out = append(out, "+ "+line)
		}
	}
	return out
}

func firstLine(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}

func newKeysMerge() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "merge FILE COPY",
		Short: "Merge the signatures of two copies of a file",
		Example: `  muster package keys merge 2.root.json from-bob/2.root.json
  muster package keys merge a/2.root.json b/2.root.json --out 2.root.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("%d files are named, want two copies of one signed file", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := readSignedFile(args[0])
			if err != nil {
				return err
			}
			b, err := readSignedFile(args[1])
			if err != nil {
				return err
			}
			merged, err := tuf.Merge(a.data, b.data)
			if err != nil {
				return err
			}
			if out == "" {
				out = args[0]
			}
			if err := writeSigned(out, merged); err != nil {
				return err
			}
			_, text := progressOf(signedFile{a.Info, merged}, out, "")
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n  %s\n", out, text)
			return err
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "file to write (default: the first file)")
	return cmd
}
