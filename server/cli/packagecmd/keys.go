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

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
)

// maxNewKeys bounds how many keys init generates: more than any threshold needs.
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

// roleKeys are the keys of one role.
type roleKeys struct {
	files   []string
	private []tuf.PrivateKey
	public  []tuf.PublicKey // of private, and those given as flags
}

func newKeysInit(remote Remote) *cobra.Command {
	var o initOptions
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Generate the first keys and the first root file",
		Long: `Generate root and targets keys, each in a file encrypted with a password, and 1.root.json,
which names them, the thresholds and the server's online key. The generated root keys
sign it. Public keys that people generated themselves (see generate) are added with
--root-pub and --targets-pub; their owners then sign with sign.

One key for each role is enough to try it out. For a fleet use three root keys, of which
two must sign, in the hands of three people, and a targets key for each person who
releases: then one lost or stolen root key does no harm.`,
		Example: `  muster package keys init --dir release
  muster package keys init --dir release --root-keys 3 --root-threshold 2 --targets-keys 2 --targets-threshold 1
  muster package keys init --dir release --root-pub ann.pub --root-pub bob.pub --root-keys 0 --online-key server.pub`,
	}
	f := cmd.Flags()
	f.StringVar(&o.dir, "dir", ".", "folder to write the keys and the root to")
	f.IntVar(&o.rootKeys, "root-keys", 1, "number of root keys to generate")
	f.IntVar(&o.rootThreshold, "root-threshold", 0, "number of root keys that must sign (default: more than half)")
	f.IntVar(&o.targetsKeys, "targets-keys", 1, "number of targets keys to generate")
	f.IntVar(&o.targetsThreshold, "targets-threshold", 1, "number of targets keys that must sign")
	f.StringArrayVar(&o.rootPublic, "root-pub", nil, "another public root key, as a file or as text")
	f.StringArrayVar(&o.targetsPublic, "targets-pub", nil, "another public targets key, as a file or as text")
	f.StringVar(&o.online, "online-key", fromServer, `public key of the server, as a file or as text, or "server" to ask the server for it`)
	f.BoolVar(&o.noPassword, "no-password", false, "do not encrypt the private keys; for tests and demos")
	o.password.addFlag(cmd)
	_ = cmd.MarkFlagDirname("dir")
	return reporting(cmd, func(cmd *cobra.Command, _ []string) (initReport, error) { return o.run(cmd, remote) }, initReport.human)
}

// initReport is the output of init. Scripts depend on its JSON keys.
type initReport struct {
	Root        string   `json:"root"`
	TrustRoot   string   `json:"trust_root"`
	RootKeys    []string `json:"root_keys"`
	TargetsKeys []string `json:"targets_keys"`
	Signatures  string   `json:"signatures"`
	Complete    bool     `json:"complete"`

	single bool // there is only one root key
}

func (r initReport) human(w io.Writer) {
	for _, f := range r.RootKeys {
		fmt.Fprintf(w, "%s\n  root key: keep it offline, with a copy elsewhere; it is needed when keys change, and once a year\n", f)
	}
	for _, f := range r.TargetsKeys {
		fmt.Fprintf(w, "%s\n  targets key: signs releases; keep it with the people who release, never on the server\n", f)
	}
	fmt.Fprintf(w, "%s\n  %s\n", r.Root, r.Signatures)
	if !r.Complete {
		// Do not print the digest: more signatures change it.
		fmt.Fprintf(w, "  next: muster package keys sign %s --key KEY\n", r.Root)
		return
	}
	fmt.Fprintf(w, "  next: muster package keys publish %s\n", r.Root)
	fmt.Fprintf(w, "\nHosts trust it with:\n  muster-agent enroll --trust-root %s …\n", r.TrustRoot)
	if r.single {
		fmt.Fprintf(w, "\nUse a single root key only for trying it out: if it is lost, keys can never be changed\nagain. For a fleet use three, of which two must sign (see --help).\n")
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
	if err := checkAbsent(all...); err != nil {
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
	if file, err = signWith(file, nil, root.private); err != nil {
		return initReport{}, err
	}
	progress, err := tuf.Signatures(file, nil)
	if err != nil {
		return initReport{}, err
	}
	if err := o.writeKeys(cmd, root, targets); err != nil {
		return initReport{}, err
	}
	// The root comes last: without its keys it is useless.
	return initReport{
		Root: rootFile, TrustRoot: tuf.Digest(file), RootKeys: root.files, TargetsKeys: targets.files,
		Signatures: progress.String(), Complete: progress.Done(), single: len(spec.Root.Keys) == 1,
	}, writeSigned(rootFile, file)
}

// makeKeys generates n keys of a role and adds the public ones. It writes nothing.
func (o initOptions) makeKeys(role tuf.Role, n int, public []string) (roleKeys, error) {
	var m roleKeys
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

func (o initOptions) spec(cmd *cobra.Command, remote Remote, root, targets roleKeys) (tuf.RootSpec, error) {
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

func (o initOptions) writeKeys(cmd *cobra.Command, roles ...roleKeys) error {
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
		return fmt.Errorf("%w, or --no-password for tests and demos", err)
	}
	return err
}

func newKeysGenerate() *cobra.Command {
	var keyFile, name string
	var noPassword bool
	var password passwordSource
	cmd := &cobra.Command{
		Use:   "generate --key FILE",
		Short: "Generate one key for root or targets",
		Long: `Write a private key, encrypted with a password, and beside it the public key with the
extension .pub, which init and rotate accept. Only its owner ever has the private key.`,
		Example: `  muster package keys generate --key ann.key --name ann`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if keyFile == "" {
				return hinted(errors.New("--key is missing"), "muster package keys generate --key ann.key --name ann")
			}
			if err := checkAbsent(keyFile, pubFile(keyFile)); err != nil {
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
	cmd.Flags().StringVar(&name, "name", "", "name of the key's owner, shown with its signatures")
	cmd.Flags().BoolVar(&noPassword, "no-password", false, "do not encrypt the private key; for tests and demos")
	password.addFlag(cmd)
	return cmd
}
