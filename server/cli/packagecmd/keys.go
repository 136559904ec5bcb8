package packagecmd

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/trust"
	"github.com/muster-fleet/muster/packaging/trust/tuf"
)

// maxNewKeys bounds what init makes: more people than sign anything together.
const maxNewKeys = 20

// initOptions are the flags of keys init.
type initOptions struct {
	dir                             string
	rootKeys, targetsKeys           int
	rootThreshold, targetsThreshold int
	rootPublic, targetsPublic       []string
	online                          string
	noPassword                      bool
	password                        passwordSource
}

// made are the keys of one role.
type made struct {
	files   []string
	private []tuf.PrivateKey
	public  []tuf.PublicKey // of these, and of those that were taken in
}

func newKeysInit(remote Remote) *cobra.Command {
	var o initOptions
	var output string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the first keys and the first root file",
		Long: `Init makes the keys of root and targets, each a file locked by a password, and
1.root.json, which names them, the thresholds and the server's online key, signed
by the keys made here. Public keys that people made for themselves with generate
are taken in with --root-pub and --targets-pub; their owners then sign with sign.

One key each is enough to try it out. For a fleet: three root keys of which two
must sign, kept by three people who meet when the root changes, and a targets key
for each person who releases. One lost or stolen root key is then no disaster.`,
		Example: `  muster package keys init --dir release
  muster package keys init --dir release --root-keys 3 --root-threshold 2 --targets-keys 2 --targets-threshold 1
  muster package keys init --dir release --root-pub ann.pub --root-pub bob.pub --root-keys 0 --online-key server.pub`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			r, err := o.run(cmd, remote)
			return show(cmd, output, r, r.human, err)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.dir, "dir", ".", "folder to write keys and root to")
	f.IntVar(&o.rootKeys, "root-keys", 1, "root keys to make")
	f.IntVar(&o.rootThreshold, "root-threshold", 0, "root keys that must sign (default: more than half)")
	f.IntVar(&o.targetsKeys, "targets-keys", 1, "targets keys to make")
	f.IntVar(&o.targetsThreshold, "targets-threshold", 1, "targets keys that must sign")
	f.StringArrayVar(&o.rootPublic, "root-pub", nil, "public key of a further root key, as a file or as text")
	f.StringArrayVar(&o.targetsPublic, "targets-pub", nil, "public key of a further targets key, as a file or as text")
	f.StringVar(&o.online, "online-key", fromServer, `public key of the server, as a file or as text; "server" asks it`)
	f.BoolVar(&o.noPassword, "no-password", false, "do not encrypt the private keys; for tests and demos")
	o.password.addFlag(cmd)
	_ = cmd.MarkFlagDirname("dir")
	addOutputFlag(cmd, &output)
	return cmd
}

// initReport is what init has made. Its JSON keys stay as they are.
type initReport struct {
	Root        string   `json:"root"`
	TrustRoot   string   `json:"trust_root"`
	RootKeys    []string `json:"root_keys"`
	TargetsKeys []string `json:"targets_keys"`
	Signatures  string   `json:"signatures"`
	Complete    bool     `json:"complete"`

	single bool // one key alone is a root's
}

func (r initReport) human(w io.Writer) {
	for _, f := range r.RootKeys {
		fmt.Fprintf(w, "%s\n  root key: keep it offline, and a copy elsewhere; it is needed when keys change, and once a year\n", f)
	}
	for _, f := range r.TargetsKeys {
		fmt.Fprintf(w, "%s\n  targets key: signs releases; keep it with who releases, never on the server\n", f)
	}
	fmt.Fprintf(w, "%s\n  %s\n", r.Root, r.Signatures)
	if !r.Complete {
		// More signatures change the file, and its digest with it.
		fmt.Fprintf(w, "  next: muster package keys sign %s --key KEY\n", r.Root)
		return
	}
	fmt.Fprintf(w, "  next: muster package keys publish %s\n", r.Root)
	fmt.Fprintf(w, "\nHosts trust it with:\n  muster-agent enroll --trust-root %s …\n", r.TrustRoot)
	if r.single {
		fmt.Fprintf(w, "\nOne root key is for trying it out: who loses it can never change keys again. For a\nfleet make three, of which two must sign (see --help).\n")
	}
}

func (o initOptions) run(cmd *cobra.Command, remote Remote) (initReport, error) {
	rootFile := filepath.Join(o.dir, tuf.FileName(tuf.RoleRoot, 1))
	root, err := o.makeKeys(tuf.RoleRoot, o.rootKeys, o.rootPublic)
	if err != nil {
		return initReport{}, err
	}
	targets, err := o.makeKeys(tuf.RoleTargets, o.targetsKeys, o.targetsPublic)
	if err != nil {
		return initReport{}, err
	}
	all := []string{rootFile}
	for _, f := range slices.Concat(root.files, targets.files) {
		all = append(all, f, pubFile(f))
	}
	if err := notThere(all...); err != nil {
		return initReport{}, err
	}
	spec, err := o.spec(cmd, remote, root, targets)
	if err != nil {
		return initReport{}, err
	}
	file, err := tuf.NewRoot(spec)
	if err != nil {
		return initReport{}, err
	}
	for _, k := range root.private {
		if file, err = tuf.Sign(file, nil, k); err != nil {
			return initReport{}, err
		}
	}
	progress, err := tuf.Signatures(file, nil)
	if err != nil {
		return initReport{}, err
	}
	if err := o.writeKeys(cmd, root, targets); err != nil {
		return initReport{}, err
	}
	// Last: a root without its keys is of no use.
	return initReport{
		Root: rootFile, TrustRoot: tuf.Digest(file), RootKeys: root.files, TargetsKeys: targets.files,
		Signatures: progress.String(), Complete: progress.Done(), single: len(spec.Root.Keys) == 1,
	}, writeSigned(rootFile, file)
}

// makeKeys makes n keys of a role and takes in public ones; nothing is written.
func (o initOptions) makeKeys(role tuf.Role, n int, public []string) (made, error) {
	var m made
	if n < 0 || n > maxNewKeys {
		return m, fmt.Errorf("--%s-keys is %d, want 0 to %d", role, n, maxNewKeys)
	}
	for i := range n {
		name := fmt.Sprintf("%s-%d", role, i+1)
		k, err := tuf.GenerateKey(rand.Reader, name)
		if err != nil {
			return m, err
		}
		m.files = append(m.files, filepath.Join(o.dir, name+".key"))
		m.private, m.public = append(m.private, k), append(m.public, k.Public())
	}
	for _, text := range public {
		k, err := readPublic(fmt.Sprintf("--%s-pub", role), text)
		if err != nil {
			return m, err
		}
		m.public = append(m.public, k)
	}
	return m, nil
}

func (o initOptions) spec(cmd *cobra.Command, remote Remote, root, targets made) (tuf.RootSpec, error) {
	threshold := o.rootThreshold
	if threshold == 0 {
		threshold = len(root.public)/2 + 1
	}
	online, err := onlineKey(cmd.Context(), remote, o.online)
	if err != nil {
		return tuf.RootSpec{}, err
	}
	spec := tuf.RootSpec{
		Root:     tuf.Signers{Keys: root.public, Threshold: threshold},
		Targets:  tuf.Signers{Keys: targets.public, Threshold: o.targetsThreshold},
		Snapshot: online, Timestamp: online, Expires: time.Now().Add(tuf.RootLife),
	}
	return spec, spec.Validate()
}

func (o initOptions) writeKeys(cmd *cobra.Command, roles ...made) error {
	word, asked := "", false
	if err := (disk.OS{}).MkdirAll("keys", o.dir, 0o755); err != nil {
		return err
	}
	for _, m := range roles {
		for i, k := range m.private {
			if !asked {
				var err error
				if word, err = choosePassword(cmd, o.noPassword, o.password); err != nil {
					return hintNoPassword(err)
				}
				asked = true
			}
			if err := writeKey(m.files[i], k, word); err != nil {
				return err
			}
		}
	}
	return nil
}

func hintNoPassword(err error) error {
	if errors.Is(err, trust.ErrNoPassword) {
		return fmt.Errorf("%w, or, if nothing of value is signed with the keys, --no-password", err)
	}
	return err
}

func newKeysGenerate() *cobra.Command {
	var keyFile, name string
	var noPassword bool
	var password passwordSource
	cmd := &cobra.Command{
		Use:   "generate --key FILE",
		Short: "Make one key for root or targets",
		Long: `Generate writes a private key, locked by a password, and beside it the public key
with the ending .pub, which init and rotate take in. So nobody but its owner ever
has the private key.`,
		Example:      `  muster package keys generate --key ann.key --name ann`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if keyFile == "" {
				return hinted(errors.New("--key is missing"), "muster package keys generate --key ann.key --name ann")
			}
			if err := notThere(keyFile, pubFile(keyFile)); err != nil {
				return err
			}
			key, err := tuf.GenerateKey(rand.Reader, name)
			if err != nil {
				return err
			}
			word, err := choosePassword(cmd, noPassword, password)
			if err != nil {
				return hintNoPassword(err)
			}
			if err := writeKey(keyFile, key, word); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "private key %s\npublic key  %s\n  %s\n", keyFile, pubFile(keyFile), key.Public())
			return err
		},
	}
	cmd.Flags().StringVar(&keyFile, "key", "", "private key file to write")
	cmd.Flags().StringVar(&name, "name", "", "whose key it is, shown wherever it signs")
	cmd.Flags().BoolVar(&noPassword, "no-password", false, "do not encrypt the private key; for tests and demos")
	password.addFlag(cmd)
	return cmd
}
