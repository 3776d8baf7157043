package config

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// agentKeys are the settings of the agent service, which is there as soon as a
// command or a preset is named. Those about users and limits hold for commands too.
var agentKeys = []Key{
	{Name: "agent.command", Doc: "The agent's command and its arguments. {{prompt}} in an argument is where the " +
		"prompt goes; without it the prompt goes to standard input. {{session}} is the id of the conversation, a " +
		"UUID. Never through a shell; a flag or variable has all of them in one text, with quotes around what has " +
		"spaces. Setting it, or a preset, starts the agent service.",
		of: func(c *Config) kind {
			return words{&c.Agent.Command, `arguments, such as ["claude", "-p", "{{prompt}}"]`}
		}},
	{Name: "agent.resume_command", Doc: "The command that continues the conversation {{session}} of a job that " +
		"was interrupted, in its HOME. It gets the prompt where {{prompt}} stands, and nothing on standard input. " +
		"Unless set, agent.command is run again, and has BELAY_RESUMED=1.",
		of: func(c *Config) kind {
			return words{&c.Agent.ResumeCommand, `arguments, such as ["my-agent", "--resume", "{{session}}", "go on"]`}
		}},
	{Name: "agent.preset", Doc: "An agent that needs no command: claude, or none.",
		of: func(c *Config) kind { return choice{&c.Agent.Preset, []string{noPreset, "claude"}} }},
	{Name: "agent.permissions", Doc: "What the agent of a preset may do without being asked: all, where the walls " +
		"of its job are all that holds it, edits, which denies it the shell, or auto, which is all for jobs that " +
		"cannot write outside of their workspace and edits for others.",
		of: func(c *Config) kind { return choice{&c.Agent.Permissions, []string{"auto", "all", "edits"}} }},
	{Name: "agent.output", Doc: "How the agent writes: plain, where standard output is the answer, stream-json, " +
		"or auto, which tells them apart by the first line.",
		of: func(c *Config) kind { return choice{&c.Agent.Output, []string{"auto", "plain", "stream-json"}} }},
	{Name: "agent.repo", Doc: "The repository, a path or URL, of which each job gets a clone of its own; an empty " +
		"directory, unless set. Credentials in it are used for it alone and shown nowhere.",
		of: func(c *Config) kind { return repository{&c.Agent} }},
	{Name: "agent.repos", Doc: "The other repositories that a job may ask for, an agent's or a command; one that " +
		"ends with *, behind a whole host, allows all that begin so. Unless set, any public one over https: " +
		"paths, ssh, and what there are credentials for want to be named.",
		of: func(c *Config) kind { return repositories{&c.Agent} }},
	{Name: "agent.git_credentials", Doc: "The file of the credentials for repositories, a line like " +
		"https://USER:PASSWORD@HOST/PATH for each, as git's credential store has it. Read anew for each use; the " +
		"longest path counts.",
		of: func(c *Config) kind {
			return text{&c.Agent.GitCredentials, "a file, such as /etc/belay/git-credentials"}
		}},
	{Name: "agent.prepare_timeout", Doc: "How long making a job's workspace may take, fetching included.",
		of: func(c *Config) kind { return duration{&c.Agent.Prepare, 10 * time.Millisecond, maxDuration} }},
	{Name: "agent.env", Doc: "Names of variables that are passed on to the agent, and that commands of others may " +
		"ask for. Where NAME_FILE is set, NAME is read from that file for each job and taken out of its output.",
		of: func(c *Config) kind { return list{&c.Agent.Env, "names, such as ANTHROPIC_API_KEY"} }},
	{Name: "agent.timeout", Doc: "How long the agent may run on a job, counted from when it starts and not from " +
		"when the job was asked for.",
		of: func(c *Config) kind { return duration{&c.Agent.Timeout, 10 * time.Millisecond, maxDuration} }},
	{Name: "agent.grace", Doc: "How long the agent may take to end when it is told to.",
		of: func(c *Config) kind { return duration{&c.Agent.Grace, 10 * time.Millisecond, time.Hour} }},
	{Name: "agent.chat_timeout", Doc: "How long a chat completion may take, its wait for a slot included.",
		of: func(c *Config) kind { return duration{&c.Agent.ChatTimeout, 10 * time.Millisecond, maxDuration} }},
	{Name: "agent.max_concurrency", Doc: "How many jobs run at the same time; others wait in order. Also known as " +
		"MAX_CONCURRENCY.", also: "MAX_CONCURRENCY",
		of: func(c *Config) kind { return number{&c.Agent.Concurrency, 1, 10_000} }},
	{Name: "agent.max_queue_depth", Doc: "How many jobs there may be that run or wait; more are refused. Also " +
		"known as MAX_QUEUE_DEPTH.", also: "MAX_QUEUE_DEPTH",
		of: func(c *Config) kind { return number{&c.Agent.QueueDepth, 1, 100_000} }},
	{Name: "agent.job_ttl", Doc: "How long after its end a job is answered for at /jobs, 0 for as long as its " +
		"execution is kept, which the retention says. Also known as JOB_TTL_SECONDS.", also: "JOB_TTL_SECONDS",
		of: func(c *Config) kind { return duration{&c.Agent.JobTTL, 0, maxDuration} }},
	{Name: "agent.fetch_debounce", Doc: "How old what is known of a remote repository may be before it is fetched " +
		"again. Also known as FETCH_DEBOUNCE_SECONDS.", also: "FETCH_DEBOUNCE_SECONDS",
		of: func(c *Config) kind { return duration{&c.Agent.FetchDebounce, 0, maxDuration} }},
	{Name: "agent.workspace_dir", Doc: "Where clones and workspaces of all jobs are; workspaces in the data " +
		"directory, unless set. Also known as WORKSPACE_DIR.", also: "WORKSPACE_DIR",
		of: func(c *Config) kind { return text{&c.Agent.WorkspaceDir, "a directory, such as /workspace"} }},
	{Name: "agent.max_attempts", Doc: "How often a job that fails or runs out of time is tried in all.",
		of: func(c *Config) kind { return number{&c.Agent.Attempts, 1, 100} }},
	{Name: "agent.dead_letters", Doc: "Leave a dead letter for a job that failed.",
		of: func(c *Config) kind { return boolean{&c.Agent.DeadLetters} }},
	{Name: "agent.on_lost", Doc: "What becomes of a job whose server or worker dies: requeue runs it again, fail " +
		"ends it.",
		of: func(c *Config) kind { return choice{&c.Agent.OnLost, []string{"requeue", "fail"}} }},
	{Name: "agent.local", Doc: "Run agents in belay serve itself; without it they are left to belay worker.",
		of: func(c *Config) kind { return boolean{&c.Agent.Local} }},
	{Name: "agent.save_every", Doc: "How often what an agent has changed so far is kept with its execution, so " +
		"that the work goes on from there when its machine is lost; 0 for only when it ends.",
		of: func(c *Config) kind { return duration{&c.Agent.Save, 0, maxDuration} }},
	{Name: "agent.keep_home", Doc: "Keep HOME with the work of a job that is interrupted, so that the agent's own " +
		"notes and conversations go on with it; without what is known to be a cache.",
		of: func(c *Config) kind { return boolean{&c.Agent.KeepHome} }},
	{Name: "agent.users", Doc: "The users as whom jobs run, agents and commands, one for each: FIRST-LAST, which " +
		"nobody else may have, none for that of the server, or auto, which is a range of its own as root and none " +
		"otherwise.",
		of: func(c *Config) kind { return users{&c.Agent.Users} }},
	{Name: "agent.seal", Doc: "Make all but its workspace read-only to a job, agent or command: by mounts as root " +
		"or where user namespaces are allowed, elsewhere by Landlock, where the kernel has it.",
		of: func(c *Config) kind { return boolean{&c.Agent.Seal} }},
	{Name: "agent.git_crypt_key", Doc: "The file of the git-crypt key with which checkouts are unlocked.",
		of: func(c *Config) kind { return text{&c.Agent.CryptKey, "a file, such as /etc/belay/git-crypt.key"} }},
	{Name: "agent.max_processes", Doc: "How many processes and threads a job may have; 0 for no limit.",
		of: func(c *Config) kind { return number{&c.Agent.Processes, 0, 1_000_000} }},
	{Name: "agent.max_cpu", Doc: "How many cores a job may use; 0 for no limit.",
		of: func(c *Config) kind { return number{&c.Agent.CPU, 0, 10_000} }},
	{Name: "agent.max_memory", Doc: "How much memory a job may use; 0B for no limit.",
		of: func(c *Config) kind { return size{&c.Agent.Memory, 0, 1 << 50} }},
	{Name: "agent.max_disk", Doc: "How much a job may take on disk; 0B for no limit.",
		of: func(c *Config) kind { return size{&c.Agent.Disk, 0, 1 << 50} }},
	{Name: "agent.max_files", Doc: "How many files and directories a job may have on disk; 0 for no limit.",
		of: func(c *Config) kind { return number{&c.Agent.Files, 0, 1_000_000_000} }},
	{Name: "agent.hidden", Doc: "Paths that jobs do not see, beside the data directory, the configuration and its " +
		"secrets, the sockets of container engines, and, where jobs run as the user of the server, the home " +
		"directory and /run.",
		of: func(c *Config) kind { return paths{&c.Agent.Hidden} }},
	{Name: "agent.readable", Doc: "Paths that jobs see all the same, to be read, such as a toolchain in the home " +
		"directory or a socket in /run. The directories of PATH and that of the agent's command are.",
		of: func(c *Config) kind { return paths{&c.Agent.Readable} }},
	{Name: "agent.egress", Doc: "What jobs may reach over the network: names like api.example.org, *.example.org " +
		"and git.example.org:443, or addresses; none for nothing. Unless set, all that the machine reaches.",
		of: func(c *Config) kind { return places{&c.Agent.Egress} }},
}

// users are a range of user ids, or a word.
type users struct{ to *string }

func (k users) set(s string) bool {
	first, last, ok := strings.Cut(s, "-")
	from, err := strconv.ParseUint(first, 10, 31)
	to, err2 := strconv.ParseUint(last, 10, 31)
	if s != "auto" && s != "none" && !(ok && err == nil && err2 == nil && from >= 1000 && from <= to) {
		return false
	}
	*k.to = s
	return true
}
func (users) want() string   { return "auto, none, or a range such as 70000-70063" }
func (k users) show() string { return *k.to }
func (users) word() string   { return "text" }
func (users) tags() []string { return []string{"!!str"} }

// wantsAgents reports whether variables or flags name a command or a preset.
func wantsAgents(env []said, flags map[string]string) bool {
	names := []string{"agent.command", "agent.preset"}
	for _, name := range names {
		if _, ok := flags[name]; ok {
			return true
		}
	}
	return slices.ContainsFunc(env, func(v said) bool { return slices.Contains(names, v.key) })
}
