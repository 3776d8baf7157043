# An agent that takes a number of small steps in a repository, one after the other, and notes in a journal in its HOME
# which step it has begun and which it has done: that is its conversation.
#
#   steps.sh begin|continue SESSION PROMPT
#
# The environment variable STEPS lists the kinds of the steps; LIFE is the name of a file that the agent makes in TMPDIR
# when it starts.
#
# When the agent continues, it checks whether the step that it had begun has taken effect. A conversation that was begun
# again, and a step that was done twice, show at the end.
set -eu
how=$1 session=$2 name=$3
journal=$HOME/conversation-$session

touch "$TMPDIR/life-$LIFE"
if [ "$how" = begin ] || [ ! -e "$HOME/began" ] && [ ! -e "$journal" ]; then # it was killed before it wrote the journal
	if [ -e "$HOME/began" ] || [ -e "$journal" ]; then echo "TWICE: begun in a HOME that has a conversation"; fi
	echo "begun $name" >"$HOME/.journal"
	mv "$HOME/.journal" "$journal" # in one step, so that the journal is never incomplete
	echo "$session" >"$HOME/began"
	echo "begun"
elif [ -e "$journal" ]; then
	echo "continued after $(tail -n 1 "$journal")"
else
	echo "LOST: there is no conversation $session"
	exit 3
fi

# is tells whether a step has taken effect.
is() {
	case $1 in
	commit) git log --format=%s | grep -qx "step $2" ;;
	stash) git stash list | grep -q ": step $2\$" ;;
	tag) git rev-parse -q --verify "refs/tags/step-$2" >/dev/null ;;
	stage) git diff --cached --name-only | grep -qx "staged-$2" ;;
	leave) [ -e "left-$2" ] ;;
	esac
}

# take takes a step, or the part of it that is missing.
take() {
	case $1 in
	commit)
		echo "$2" >"commit-$2"
		git add "commit-$2"
		git commit -q -m "step $2" -- "commit-$2"
		;;
	stash)
		echo "$2" >"stash-$2"
		git stash push -q --include-untracked -m "step $2" -- "stash-$2"
		;;
	tag) git tag -a -m "step $2" "step-$2" ;;
	stage)
		echo "$2" >"staged-$2"
		git add "staged-$2"
		;;
	leave)
		echo "$2" >"left-$2.new"
		mv "left-$2.new" "left-$2"
		;;
	esac
}

n=0
for kind in $STEPS; do
	n=$((n + 1))
	if grep -qx "did $n" "$journal"; then continue; fi
	if grep -qx "do $n" "$journal"; then
		rm -f .git/index.lock .git/HEAD.lock .git/refs/stash.lock "left-$n.new" # of a git that was killed
		if is $kind $n; then
			if [ $kind = stash ]; then git rm -q -f --ignore-unmatch "stash-$n"; rm -f "stash-$n"; fi # left by an incomplete stash
			echo "did $n" >>"$journal"
			continue
		fi
	else
		if is $kind $n; then echo "TWICE: step $n had been done"; fi
		echo "do $n" >>"$journal"
	fi
	take $kind $n
	echo "did $n" >>"$journal"
	sleep "${STEP_PAUSE:-0.4}" # for its model
done

echo "conversations: $(ls "$HOME" | grep -c '^conversation-'), begun: $(grep -c '^begun' "$journal")"
echo "commits: $(git log --reverse --format=%s | grep '^step' | tr '\n' ',')"
echo "stashes: $(git stash list --format=%gs | sed 's/.*: //' | sort | tr '\n' ',')"
for s in $(git stash list --format=%gd); do echo "$s: $(git ls-tree -r --name-only "$s^3" | tr '\n' ',')"; done
echo "tags: $(git tag -l --format='%(refname:short)=%(contents:subject)' | tr '\n' ',')"
echo "staged: $(git diff --cached --name-only | tr '\n' ',')"
echo "left: $(git ls-files --others --exclude-standard | tr '\n' ',')"
echo "texts: $(cat commit-* staged-* left-* | sort -n | tr '\n' ',')"
