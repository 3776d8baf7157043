package agent

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// gitRepository makes an empty repository.
func gitRepository(t *testing.T, dir string) string {
	t.Helper()
	if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// Rule: a job may use a repository that needs the operator's rights (a path, ssh, or a URL with
// credentials) only if the settings name that repository. If the settings name no repositories at
// all, jobs may use every public https repository.
func TestOnlyPublicRepositoriesNeedNoName(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	own, other := gitRepository(t, filepath.Join(root, "own")), gitRepository(t, filepath.Join(root, "other"))
	private := func(url string) (string, string, bool, error) {
		return "bot", "secret", strings.HasPrefix(url, "https://private.example/"), nil
	}
	r := &Repositories{Own: own, Credentials: private}
	for repo, want := range map[string]belay.Code{
		"https://public.example/x": "", "https://private.example/x": belay.CodeForbidden,
		"https://PRIVATE.example:443//x.git": belay.CodeForbidden,
		own:                                  "", "file://" + own: "", own + "/../own": "", other: belay.CodeForbidden,
		root:                         belay.CodeForbidden,
		filepath.Join(root, "none"):  belay.CodeForbidden,
		"ssh://git@public.example/x": belay.CodeForbidden, "git@public.example:x": belay.CodeForbidden,
		"/etc": belay.CodeForbidden, "relative": belay.CodeInvalid,
		"https://bot:secret@public.example/x": belay.CodeInvalid, "https://public.example/a/../b": belay.CodeInvalid,
	} {
		err := r.Check(repo)
		if (err == nil) != (want == "") || err != nil && belay.CodeOf(err) != want {
			t.Errorf("%s: %v, want %q", repo, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), root) || strings.Contains(err.Error(), "secret") ||
			want == belay.CodeForbidden && err.Error() != errRepository.Error()) {
			t.Errorf("%s: the error reveals more: %v", repo, err)
		}
	}
	named := &Repositories{
		Own: own, Named: []string{"https://private.example/team/*", root + "/oth*"}, Credentials: private,
	}
	for repo, good := range map[string]bool{
		"https://private.example/team/x": true, "https://private.example/x": false, "https://public.example/x": false,
		other: true, own: true, filepath.Join(root, "others"): false,
	} {
		if err := named.Check(repo); (err == nil) != good {
			t.Errorf("%s, where others are named: %v", repo, err)
		}
	}
	broken := errors.New("no such file")
	r.Credentials = func(string) (string, string, bool, error) { return "", "", false, broken }
	if err := r.Check("https://public.example/x"); !errors.Is(err, broken) {
		t.Errorf("with credentials that cannot be read: %v", err)
	}
}

// Rule: Check refuses a symbolic link that lies in a listed directory and leads to a repository
// outside that directory. If jobs run on other machines, Check does not resolve paths.
func TestRepositoriesAndLinks(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	gitRepository(t, filepath.Join(root, "named", "in"))
	gitRepository(t, filepath.Join(root, "secret"))
	for link, to := range map[string]string{"named/out": "secret", "alias": "named"} {
		if err := os.Symlink(filepath.Join(root, to), filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"named", "alias"} {
		r := &Repositories{Named: []string{filepath.Join(root, dir) + "/*"}}
		for repo, good := range map[string]bool{dir + "/in": true, "named/in": true, dir + "/out": false,
			"secret": false, dir + "/../secret": false, dir + "/none": false} {
			if err := r.Check(root + "/" + repo); (err == nil) != good {
				t.Errorf("%s/*, %s: %v", dir, repo, err)
			}
		}
		r.Elsewhere = true
		if err := r.Check(filepath.Join(root, dir, "none")); err != nil {
			t.Errorf("elsewhere: %v", err)
		}
	}
}

// Rule: Admit and AdmitJob check the input of a built-in workflow, and an unusual spelling of a
// field name cannot bypass the check.
func TestInputIsCheckedBeforeItIsStored(t *testing.T) {
	s, err := NewSetup("", Setup{
		Command: Template{"agent", "{{prompt}}"}, Repos: []string{"https://git.example/team/*"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for input, want := range map[string]belay.Code{
		`{"prompt":"a"}`: "", `{"prompt":"a","repo":"https://git.example/team/x","ref":"main","metadata":{"Repo":1}}`: "",
		`{"prompt":""}`: belay.CodeInvalid, `{}`: belay.CodeInvalid, `null`: belay.CodeInvalid, `[]`: belay.CodeInvalid,
		`"a"`: belay.CodeInvalid, ``: belay.CodeInvalid,
		`{"prompt":"a","repo":"https://git.example/x"}`:                                              belay.CodeForbidden,
		`{"prompt":"a","repo":"/etc"}`:                                                               belay.CodeForbidden,
		`{"prompt":"a","repo":"https://tok@git.example/team/x"}`:                                     belay.CodeInvalid,
		`{"prompt":"a","Repo":"https://tok@git.example/team/x","repo":"https://git.example/team/x"}`: belay.CodeInvalid,
		`{"Prompt":"a"}`: belay.CodeInvalid, `{"prompt":"a","more":1}`: belay.CodeInvalid,
		`{"prompt":"a","timeout":"-1s"}`:                                             belay.CodeInvalid,
		`{"prompt":"a","repo":"https://git.example/team/x","ref":"--upload-pack=x"}`: belay.CodeInvalid,
		`{"prompt":"` + strings.Repeat("x", 130<<10) + `"}`:                          belay.CodePayloadTooLarge,
	} {
		if err := s.Admit(json.RawMessage(input)); (err == nil) != (want == "") || err != nil &&
			belay.CodeOf(err) != want || err != nil && strings.Contains(err.Error(), "tok@") {
			t.Errorf("%.80s: %v, want %q", input, err, want)
		}
	}
	repos := &Repositories{Named: []string{"https://git.example/team/*"}}
	const steps = `"steps":[{"name":"a","argv":["true"]}]`
	for input, want := range map[string]belay.Code{
		`{` + steps + `}`: "", `{` + steps + `,"repo":"https://git.example/team/x"}`: "",
		`{"steps":[]}`: belay.CodeInvalid, `{` + steps + `,"repo":"/srv/x"}`: belay.CodeForbidden,
		`{` + steps + `,"repo":"https://bot:tok@git.example/team/x"}`: belay.CodeInvalid,
		`{"prompt":"a"}`: belay.CodeInvalid, `{` + steps + `,"env":["GIT_DIR"]}`: belay.CodeInvalid,
	} {
		if err := AdmitJob(json.RawMessage(input), repos); (err == nil) != (want == "") || err != nil &&
			belay.CodeOf(err) != want {
			t.Errorf("%.80s: %v, want %q", input, err, want)
		}
	}
	if err := AdmitJob(json.RawMessage(`{`+steps+`,"repo":"/srv/x"}`), nil); err != nil {
		t.Errorf("where every repository is allowed: %v", err)
	}
	if err := errors.Join(CheckInput("other", json.RawMessage(`{"repo":"https://tok@h/x"}`)),
		CheckInput(Workflow, json.RawMessage(`{`+steps+`}`))); err != nil {
		t.Error(err)
	}
}
