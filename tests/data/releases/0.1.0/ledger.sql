CREATE TABLE public.about (
    schema_version integer NOT NULL,
    needs text NOT NULL,
    ledger_id character varying(36) NOT NULL
);
CREATE SEQUENCE public.about_schema_version_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.about_schema_version_seq OWNED BY public.about.schema_version;
CREATE TABLE public.approvals (
    id character varying(32) NOT NULL,
    batch text NOT NULL,
    question character varying(16) NOT NULL,
    plan character varying(64) NOT NULL,
    jobs bigint NOT NULL,
    quoted bigint NOT NULL,
    at_most bigint NOT NULL,
    rates json NOT NULL,
    charges json NOT NULL,
    part text NOT NULL,
    asked_at character varying(27) NOT NULL,
    flow_run text,
    decision character varying(16),
    decided_at character varying(27),
    decided_by text,
    place character varying(16),
    budget_limit bigint,
    note text
);
CREATE TABLE public.attempts (
    job_key character varying(64) NOT NULL,
    attempt integer NOT NULL,
    superseded boolean NOT NULL,
    batch text NOT NULL,
    run_id character varying(36),
    approval character varying(32) NOT NULL,
    state character varying(16) NOT NULL,
    row_id text NOT NULL,
    sample integer NOT NULL,
    type character varying(16) NOT NULL,
    model text NOT NULL,
    prompt text NOT NULL,
    request text NOT NULL,
    carried json NOT NULL,
    quoted bigint,
    cost bigint,
    cost_source character varying(16),
    currency character varying(8) NOT NULL,
    billable_unit text,
    unit_price bigint,
    quantity bigint,
    generation_id text,
    error_code text,
    error_message text,
    submitted_at character varying(27),
    finished_at character varying(27),
    request_key character varying(64) NOT NULL
);
CREATE TABLE public.batches (
    batch text NOT NULL,
    service text NOT NULL,
    bound_at character varying(27) NOT NULL,
    rates json NOT NULL,
    bought_at character varying(27)
);
CREATE TABLE public.changes (
    number bigint NOT NULL,
    batch text NOT NULL,
    setting text NOT NULL,
    value json,
    run_id character varying(36),
    changed_by text NOT NULL,
    changed_at character varying(27) NOT NULL
);
CREATE TABLE public.charges (
    batch text NOT NULL,
    last json NOT NULL,
    dearer json NOT NULL,
    accepted json NOT NULL,
    above bigint NOT NULL
);
CREATE TABLE public.checks (
    job_key character varying(64) NOT NULL,
    attempt integer NOT NULL,
    index integer NOT NULL,
    batch text NOT NULL,
    flags json NOT NULL,
    score double precision,
    hash character varying(16),
    checked_at character varying(27) NOT NULL
);
CREATE TABLE public.learned (
    service text NOT NULL,
    limits json NOT NULL
);
CREATE TABLE public.marks (
    number bigint NOT NULL,
    batch text NOT NULL,
    job_key character varying(64) NOT NULL,
    attempt integer NOT NULL,
    index integer NOT NULL,
    decision character varying(16),
    note text,
    decided_by text NOT NULL,
    decided_at character varying(27) NOT NULL
);
CREATE TABLE public.media (
    job_key character varying(64) NOT NULL,
    attempt integer NOT NULL,
    index integer NOT NULL,
    storage text NOT NULL,
    name text NOT NULL,
    folded_name text NOT NULL,
    source_url text NOT NULL,
    mime_type text NOT NULL,
    width integer,
    height integer,
    duration double precision,
    fps double precision,
    has_sound boolean,
    deletes_at character varying(27),
    url text,
    sha256 character varying(64),
    bytes bigint,
    stored_at character varying(27),
    lost_at character varying(27)
);
CREATE TABLE public.runs (
    id character varying(36) NOT NULL,
    batch text NOT NULL,
    host text NOT NULL,
    boot text,
    pid integer NOT NULL,
    process_start text,
    started_at character varying(27) NOT NULL,
    lease_until character varying(27) NOT NULL,
    ended_at character varying(27),
    balance_at_start bigint,
    spent_at_start bigint,
    flow_run text,
    approval character varying(32),
    refused text,
    taken bigint NOT NULL
);
CREATE TABLE public.settlements (
    job_key character varying(64) NOT NULL,
    attempt integer NOT NULL,
    charged boolean NOT NULL,
    settled_by text NOT NULL,
    settled_at character varying(27) NOT NULL,
    why text
);
CREATE TABLE public.totals (
    batch text NOT NULL,
    day character varying(10) NOT NULL,
    approval character varying(32) NOT NULL,
    quoted bigint NOT NULL,
    reserved bigint NOT NULL,
    in_flight bigint NOT NULL,
    in_doubt bigint NOT NULL,
    spent bigint NOT NULL
);
ALTER TABLE ONLY public.about ALTER COLUMN schema_version SET DEFAULT nextval('public.about_schema_version_seq'::regclass);
INSERT INTO public.about VALUES (16, '0.1.0', '07ac6067-af76-4dc7-8016-1652b1af7f77');
INSERT INTO public.approvals VALUES ('01eef894581348fbb2a4f200e053aaa8', 'shots', 'quote', '32e42c4583d9835c3ca44df1a7d997c7f8edd17db3171bf56574671a0a237d1a', 3, 4500, 4500, '[{"id": "sketch-1", "name": "Sketch 1", "type": "image", "supported_aspect_ratios": ["16:9", "1:1", "9:16"], "supported_durations": [], "supported_resolutions": ["0.25K", "0.5K"], "supports_sound": false, "supported_references": {}, "pricing": {"currency": "USD", "rates": [{"resolution": "0.25K", "sound": "not_applicable", "billable_unit": "image", "unit_price": "0.0015"}, {"resolution": "0.5K", "sound": "not_applicable", "billable_unit": "image", "unit_price": "0.0035"}]}, "unreadable": "", "ambiguous": false}]', '[]', '', '2026-11-28T04:26:25.053478Z', NULL, 'not_asked', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.approvals VALUES ('188e547a62454c418f4c7264d021ea74', 'shots', 'quote', 'bf0db2788cf294dfdb42bcf9b20e3485fe9ceb75fb20c16965fd033e31e74ed0', 2, 9500, 9500, '[{"id": "dailies-1", "name": "Dailies 1", "type": "video", "supported_aspect_ratios": ["9:16", "16:9"], "supported_durations": [2, 1, 3], "supported_resolutions": ["360p", "720p"], "supports_sound": true, "supported_references": {"reference_image": 4}, "pricing": {"currency": "USD", "rates": [{"resolution": "360p", "sound": "sound_off", "billable_unit": "video_second", "unit_price": "0.0080"}, {"resolution": "360p", "sound": "not_applicable", "billable_unit": "video_second", "unit_price": "0.0115"}, {"resolution": "720p", "sound": "sound_on", "billable_unit": "video_second", "unit_price": "0.0420"}, {"resolution": "720p", "sound": "not_applicable", "billable_unit": "video_second", "unit_price": "0.0300"}]}, "unreadable": "", "ambiguous": false}, {"id": "sketch-1", "name": "Sketch 1", "type": "image", "supported_aspect_ratios": ["16:9", "1:1", "9:16"], "supported_durations": [], "supported_resolutions": ["0.25K", "0.5K"], "supports_sound": false, "supported_references": {}, "pricing": {"currency": "USD", "rates": [{"resolution": "0.25K", "sound": "not_applicable", "billable_unit": "image", "unit_price": "0.0015"}, {"resolution": "0.5K", "sound": "not_applicable", "billable_unit": "image", "unit_price": "0.0035"}]}, "unreadable": "", "ambiguous": false}]', '[]', 'the jobs of 2 rows', '2026-11-28T04:26:08.820036Z', NULL, 'approved', '2026-11-28T04:26:08.852221Z', 'ana', '--yes', NULL, NULL);
INSERT INTO public.approvals VALUES ('2c0092226f8e4e6b83a88be7bc82f646', 'shots', 'quote', 'd75327004449f84aa3f226f2e1f5a7719063187a359c5f7afc76b2e57a8d2c9f', 10, 21500, 21500, '[{"id": "dailies-1", "name": "Dailies 1", "type": "video", "supported_aspect_ratios": ["9:16", "16:9"], "supported_durations": [2, 1, 3], "supported_resolutions": ["360p", "720p"], "supports_sound": true, "supported_references": {"reference_image": 4}, "pricing": {"currency": "USD", "rates": [{"resolution": "360p", "sound": "sound_off", "billable_unit": "video_second", "unit_price": "0.0080"}, {"resolution": "360p", "sound": "not_applicable", "billable_unit": "video_second", "unit_price": "0.0115"}, {"resolution": "720p", "sound": "sound_on", "billable_unit": "video_second", "unit_price": "0.0420"}, {"resolution": "720p", "sound": "not_applicable", "billable_unit": "video_second", "unit_price": "0.0300"}]}, "unreadable": "", "ambiguous": false}, {"id": "sketch-1", "name": "Sketch 1", "type": "image", "supported_aspect_ratios": ["16:9", "1:1", "9:16"], "supported_durations": [], "supported_resolutions": ["0.25K", "0.5K"], "supports_sound": false, "supported_references": {}, "pricing": {"currency": "USD", "rates": [{"resolution": "0.25K", "sound": "not_applicable", "billable_unit": "image", "unit_price": "0.0015"}, {"resolution": "0.5K", "sound": "not_applicable", "billable_unit": "image", "unit_price": "0.0035"}]}, "unreadable": "", "ambiguous": false}]', '[]', '', '2026-11-28T04:26:04.704976Z', NULL, 'approved', '2026-11-28T04:26:04.715793Z', 'ana', '--yes', NULL, NULL);
INSERT INTO public.approvals VALUES ('4f7e26e131b3402abd69d6ce2b8b0e05', 'shots', 'quote', 'd75327004449f84aa3f226f2e1f5a7719063187a359c5f7afc76b2e57a8d2c9f', 1, 1500, 1500, '[{"id": "sketch-1", "name": "Sketch 1", "type": "image", "supported_aspect_ratios": ["16:9", "1:1", "9:16"], "supported_durations": [], "supported_resolutions": ["0.25K", "0.5K"], "supports_sound": false, "supported_references": {}, "pricing": {"currency": "USD", "rates": [{"resolution": "0.25K", "sound": "not_applicable", "billable_unit": "image", "unit_price": "0.0015"}, {"resolution": "0.5K", "sound": "not_applicable", "billable_unit": "image", "unit_price": "0.0035"}]}, "unreadable": "", "ambiguous": false}]', '[]', 'the jobs of 1 row', '2026-11-28T04:26:04.106511Z', NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.attempts VALUES ('1280a29d00cc0843aea3180c5b489bb4b71ff08dc21c46ef769c56263b3fc0a6', 1, false, 'shots', '0545de0a-b52a-4956-97e6-32a05a2bf365', '01eef894581348fbb2a4f200e053aaa8', 'planned', 'reserved', 1, 'image', 'sketch-1', 'reserved', '{"aspect_ratio":"1:1","model":"sketch-1","output_format":"jpeg","prompt":"reserved","resolution":"0.25K"}', '{"shelf": "13"}', 1500, NULL, NULL, 'USD', 'image', 1500, 1000000, NULL, NULL, NULL, NULL, NULL, '731194be7c0593a895690157f90a7270603dc8cc37697699333be4ca0f34a112');
INSERT INTO public.attempts VALUES ('4c0cdf68af9675241cae83ab49425ea0b3c23705e3ebf6dd16dfd9e38c375b76', 1, false, 'shots', '244ad371-777e-475d-8d89-ad208c26d658', '2c0092226f8e4e6b83a88be7bc82f646', 'stored', 'cup', 1, 'image', 'sketch-1', 'a cup', '{"aspect_ratio":"1:1","model":"sketch-1","output_format":"jpeg","prompt":"a cup","resolution":"0.25K"}', '{"shelf": "2"}', 1500, 1500, 'usage', 'USD', 'image', 1500, 1000000, 'req-5c75502c87694f3aae1a1368a43f05c8', NULL, NULL, '2026-11-28T04:26:04.790390Z', '2026-11-28T04:26:05.062358Z', 'd2bb3b16cf761fb1409fca11d06442ab71ca75f0a73b05ea0a94b68c1eea59c4');
INSERT INTO public.attempts VALUES ('50979a89abc390f78039334ea6dcca1f6fef6a1ae4a5d20fe82b8b8f3315c598', 1, false, 'shots', '0545de0a-b52a-4956-97e6-32a05a2bf365', '01eef894581348fbb2a4f200e053aaa8', 'submitting', 'answered', 1, 'image', 'sketch-1', 'an answer in the journal', '{"aspect_ratio":"1:1","model":"sketch-1","output_format":"jpeg","prompt":"an answer in the journal","resolution":"0.25K"}', '{"shelf": "12"}', 1500, NULL, NULL, 'USD', 'image', 1500, 1000000, NULL, NULL, NULL, '2026-11-28T04:26:27.268085Z', NULL, 'dcd0313ee200dba4c2bb64a13b09eb8726d0254f4477b8f9020d83546547e6e8');
INSERT INTO public.attempts VALUES ('57f041127cd96caf3f0db6ea51db039bfb27d52040db1ed4ce93cc2427758f21', 1, false, 'shots', '244ad371-777e-475d-8d89-ad208c26d658', '2c0092226f8e4e6b83a88be7bc82f646', 'in_doubt', 'doubt', 1, 'image', 'sketch-1', 'cut off', '{"aspect_ratio":"1:1","model":"sketch-1","output_format":"jpeg","prompt":"cut off","resolution":"0.25K"}', '{"shelf": "6"}', 1500, NULL, NULL, 'USD', 'image', 1500, 1000000, NULL, 'in_doubt', 'POST /v2/images/generations: sent, but no answer came: RemoteProtocolError: Server disconnected without sending a response.', '2026-11-28T04:26:04.790505Z', '2026-11-28T04:26:04.841909Z', '2a4f1983c894e9a9c497d0e4727019d9c74ba634edd940137fe281490194b637');
INSERT INTO public.attempts VALUES ('80ff007566bf2a112299d7c830f84ce2ed267b5ba9e8b50015ac0b3d513c7527', 1, false, 'shots', '244ad371-777e-475d-8d89-ad208c26d658', '2c0092226f8e4e6b83a88be7bc82f646', 'lost', 'charged', 1, 'image', 'sketch-1', 'cut off, and charged', '{"aspect_ratio":"1:1","model":"sketch-1","output_format":"jpeg","prompt":"cut off, and charged","resolution":"0.25K"}', '{"shelf": "7"}', 1500, 1500, 'quoted', 'USD', 'image', 1500, 1000000, NULL, 'charged', 'POST /v2/images/generations: sent, but no answer came: RemoteProtocolError: Server disconnected without sending a response; settled as charged by ana', '2026-11-28T04:26:04.790538Z', '2026-11-28T04:26:04.841986Z', '373ee0ede6731ee6b51201b89fe9ffe72634de0f40119849b3fc43d89c2ea4ac');
INSERT INTO public.attempts VALUES ('8c97af6e50ebc32ca5079cdf0ef33741f21ead3070519454e186cd716a9c697a', 1, false, 'shots', '0545de0a-b52a-4956-97e6-32a05a2bf365', '188e547a62454c418f4c7264d021ea74', 'pending', 'slow', 1, 'video', 'dailies-1', 'a slow clip', '{"aspect_ratio":"9:16","duration":1,"model":"dailies-1","prompt":"a slow clip","resolution":"360p","sound":false}', '{"shelf": "10"}', 8000, NULL, NULL, 'USD', 'video_second', 8000, 1000000, 'req-41d870c07b5e4ce6b00c766986638745', NULL, NULL, '2026-11-28T04:26:08.931053Z', NULL, '6652abd1b56ca7475d249aaa2029cc3dfa4419f2352e5483c4718945b0630bd7');
INSERT INTO public.attempts VALUES ('a3353ca34c2372f7a9c547ce16a4b32c2e0c9775dbd2c838716e14835b32cfa7', 1, false, 'shots', '244ad371-777e-475d-8d89-ad208c26d658', '2c0092226f8e4e6b83a88be7bc82f646', 'stored', 'jug', 1, 'image', 'sketch-1', 'a jug', '{"aspect_ratio":"1:1","model":"sketch-1","output_format":"jpeg","prompt":"a jug","resolution":"0.25K"}', '{"shelf": "3"}', 1500, 1500, 'usage', 'USD', 'image', 1500, 1000000, 'req-9441d9b3b77948c494974bd26fed11da', NULL, NULL, '2026-11-28T04:26:04.790435Z', '2026-11-28T04:26:05.062346Z', '60b3ba34a4edc9016d6cf0f6fa7e39d8dc20e41936cfb308744a6d493505aa9b');
INSERT INTO public.attempts VALUES ('ae08a0640fcc1252ab7439070cc06748eed623fbd87a5fde29fe8dc744de2d25', 1, true, 'shots', '244ad371-777e-475d-8d89-ad208c26d658', '2c0092226f8e4e6b83a88be7bc82f646', 'failed', 'free', 1, 'image', 'sketch-1', 'cut off, and not charged', '{"aspect_ratio":"1:1","model":"sketch-1","output_format":"jpeg","prompt":"cut off, and not charged","resolution":"0.25K"}', '{"shelf": "8"}', 1500, 0, NULL, 'USD', 'image', 1500, 1000000, NULL, 'not_charged', 'POST /v2/images/generations: sent, but no answer came: RemoteProtocolError: Server disconnected without sending a response; settled as not charged by ana', '2026-11-28T04:26:04.790604Z', '2026-11-28T04:26:04.842049Z', '4efae6b94c1b76826caa9bdf8817c68fe2884cf5845ccb8d85a93c9402b61901');
INSERT INTO public.attempts VALUES ('ae08a0640fcc1252ab7439070cc06748eed623fbd87a5fde29fe8dc744de2d25', 2, false, 'shots', '2702b7a4-656e-43e5-aba4-73d6e0d95c3b', '188e547a62454c418f4c7264d021ea74', 'in_doubt', 'free', 1, 'image', 'sketch-1', 'cut off, and not charged', '{"aspect_ratio":"1:1","model":"sketch-1","output_format":"jpeg","prompt":"cut off, and not charged","resolution":"0.25K"}', '{"shelf": "8"}', 1500, NULL, NULL, 'USD', 'image', 1500, 1000000, NULL, 'in_doubt', 'POST /v2/images/generations: sent, but no answer came: RemoteProtocolError: Server disconnected without sending a response.', '2026-11-28T04:26:08.930982Z', '2026-11-28T04:26:08.975798Z', '4efae6b94c1b76826caa9bdf8817c68fe2884cf5845ccb8d85a93c9402b61901');
INSERT INTO public.attempts VALUES ('aed9ee3a063c58d4fdd3c91014e5aca4c471723da218f103b9b78f17bc6a76a8', 1, false, 'shots', '244ad371-777e-475d-8d89-ad208c26d658', '2c0092226f8e4e6b83a88be7bc82f646', 'stored', 'bowl', 1, 'image', 'sketch-1', 'a bowl', '{"aspect_ratio":"1:1","model":"sketch-1","output_format":"jpeg","prompt":"a bowl","resolution":"0.25K"}', '{"shelf": "1"}', 1500, 1500, 'usage', 'USD', 'image', 1500, 1000000, 'req-e80cb56295cc47459436974d9efcef01', NULL, NULL, '2026-11-28T04:26:04.790346Z', '2026-11-28T04:26:05.062233Z', '3e1dd7720b675c6f0a5f9ba8bc370ad93370cbd63f3e44b1442f6cca451a61f2');
INSERT INTO public.attempts VALUES ('ba993c3dbd1ba9586cd2b357b71f149c96e1fc47219e442b7adec9782198f656', 1, false, 'shots', '244ad371-777e-475d-8d89-ad208c26d658', '2c0092226f8e4e6b83a88be7bc82f646', 'stored', 'clip', 1, 'video', 'dailies-1', 'a clip', '{"aspect_ratio":"9:16","duration":1,"model":"dailies-1","prompt":"a clip","resolution":"360p","sound":false}', '{"shelf": "4"}', 8000, 8000, 'usage', 'USD', 'video_second', 8000, 1000000, 'req-2aedc265feec4108b9f619aaf2c3f518', NULL, NULL, '2026-11-28T04:26:04.854468Z', '2026-11-28T04:26:05.416171Z', 'b8beb5243454dc7431dd96c1d61fb8715101ed8049faf38884b7fc563b585c34');
INSERT INTO public.attempts VALUES ('d1e64ad46b0321845286590e4332fdf6381e10dee6fc13ab240f0c442aeaa22e', 1, false, 'shots', '244ad371-777e-475d-8d89-ad208c26d658', '2c0092226f8e4e6b83a88be7bc82f646', 'failed', 'refused', 1, 'image', 'sketch-1', 'refused forbidden-test-word', '{"aspect_ratio":"1:1","model":"sketch-1","output_format":"jpeg","prompt":"refused forbidden-test-word","resolution":"0.25K"}', '{"shelf": "5"}', 1500, 0, NULL, 'USD', 'image', 1500, 1000000, NULL, 'content_policy_violation', 'POST /v2/images/generations: The prompt does not pass the safety check. (422 content_policy_violation, prompt)', '2026-11-28T04:26:04.790474Z', '2026-11-28T04:26:04.828283Z', '4ef82b01a8bca10f196fdea2dacfc84add3e8d77a8769b0454332c51abec2955');
INSERT INTO public.attempts VALUES ('ebbbd3d617866e8b6f579a706ac584ddd9c28d7d31a18cc098e0cea969a08b6d', 1, false, 'shots', '244ad371-777e-475d-8d89-ad208c26d658', '2c0092226f8e4e6b83a88be7bc82f646', 'lost', 'lost', 1, 'image', 'sketch-1', 'gone', '{"aspect_ratio":"1:1","model":"sketch-1","output_format":"jpeg","prompt":"gone","resolution":"0.25K"}', '{"shelf": "9"}', 1500, 1500, 'usage', 'USD', 'image', 1500, 1000000, 'req-461e7ee4723a4b91bdd3838ba7d29745', 'lost', 'the file was deleted on 2026-11-28 04:26:03+00:00: GET http://127.0.0.1:34081/v2/downloads/req-461e7ee4723a4b91bdd3838ba7d29745/0: The URL has expired. (410 not_found, exp)', '2026-11-28T04:26:04.828387Z', '2026-11-28T04:26:05.629913Z', '2105b63a387475dfdf1980618d5ec91a41a106b99c2a1b9e5a04f3b7421f9b20');
INSERT INTO public.attempts VALUES ('f011e1c37289aaf63ca1122d5df3623e3c69cfe2cfc233af7e5dc54f9fa293f2', 1, false, 'shots', '0545de0a-b52a-4956-97e6-32a05a2bf365', '01eef894581348fbb2a4f200e053aaa8', 'generated', 'spooled', 1, 'image', 'sketch-1', 'a file in the spool', '{"aspect_ratio":"1:1","model":"sketch-1","output_format":"jpeg","prompt":"a file in the spool","resolution":"0.25K"}', '{"shelf": "11"}', 1500, 1500, 'usage', 'USD', 'image', 1500, 1000000, 'req-1cb8bbf79cc54430acfe4a8d8d390fad', NULL, NULL, '2026-11-28T04:26:25.192196Z', NULL, 'f4248015699857b4874ef8f63d0aacb99cae78b3bdc35ead5073cb5d0e14ea31');
INSERT INTO public.attempts VALUES ('f7e380b613faeda052bd688cdf8ceecfdede83cfa4a3dfbae03ff4ae00713167', 1, false, 'shots', '244ad371-777e-475d-8d89-ad208c26d658', '2c0092226f8e4e6b83a88be7bc82f646', 'stored', 'vase', 1, 'image', 'sketch-1', 'a vase ☂', '{"aspect_ratio":"1:1","model":"sketch-1","output_format":"jpeg","prompt":"a vase ☂","resolution":"0.25K"}', '{"shelf": "0"}', 1500, 1500, 'usage', 'USD', 'image', 1500, 1000000, 'req-283aa5132d6948cfac0ad499040cc113', NULL, NULL, '2026-11-28T04:26:04.790289Z', '2026-11-28T04:26:05.101048Z', '3e1306d88edd6929e40d007c7966c5bbae2a4b7177f032d75bb480dd696525b6');
INSERT INTO public.batches VALUES ('shots', 'http://127.0.0.1:34081', '2026-11-28T04:26:04.784228Z', '{"dailies-1": {"id": "dailies-1", "name": "Dailies 1", "type": "video", "supported_aspect_ratios": ["9:16", "16:9"], "supported_durations": [2, 1, 3], "supported_resolutions": ["360p", "720p"], "supports_sound": true, "supported_references": {"reference_image": 4}, "pricing": {"currency": "USD", "rates": [{"resolution": "360p", "sound": "sound_off", "billable_unit": "video_second", "unit_price": "0.0080"}, {"resolution": "360p", "sound": "not_applicable", "billable_unit": "video_second", "unit_price": "0.0115"}, {"resolution": "720p", "sound": "sound_on", "billable_unit": "video_second", "unit_price": "0.0420"}, {"resolution": "720p", "sound": "not_applicable", "billable_unit": "video_second", "unit_price": "0.0300"}]}, "unreadable": "", "ambiguous": false}, "sketch-1": {"id": "sketch-1", "name": "Sketch 1", "type": "image", "supported_aspect_ratios": ["16:9", "1:1", "9:16"], "supported_durations": [], "supported_resolutions": ["0.25K", "0.5K"], "supports_sound": false, "supported_references": {}, "pricing": {"currency": "USD", "rates": [{"resolution": "0.25K", "sound": "not_applicable", "billable_unit": "image", "unit_price": "0.0015"}, {"resolution": "0.5K", "sound": "not_applicable", "billable_unit": "image", "unit_price": "0.0035"}]}, "unreadable": "", "ambiguous": false}}', '2026-11-28T04:26:04.813895Z');
INSERT INTO public.changes VALUES (1, 'shots', 'budget.limit', '"10.00"', '4e15f6ef-4361-4ab1-9bea-908cfb4e89b9', 'ana (config)', '2026-11-28T04:26:03.934117Z');
INSERT INTO public.changes VALUES (2, 'shots', 'paused', 'true', NULL, 'ana', '2026-11-28T04:26:09.354002Z');
INSERT INTO public.changes VALUES (3, 'shots', 'paused', 'false', NULL, 'ana', '2026-11-28T04:26:11.059252Z');
INSERT INTO public.changes VALUES (4, 'shots', 'budget.limit', '"9.50"', NULL, 'ana', '2026-11-28T04:26:13.102824Z');
INSERT INTO public.changes VALUES (5, 'shots', 'limits.image_rpm', '30', NULL, 'ana', '2026-11-28T04:26:13.102824Z');
INSERT INTO public.changes VALUES (6, 'shots', 'budget.limit', '"10.00"', '0545de0a-b52a-4956-97e6-32a05a2bf365', 'ana (config)', '2026-11-28T04:26:24.836068Z');
INSERT INTO public.charges VALUES ('shots', '[["lost", 1, "sketch-1", "0.001500", "0.001500", false], ["clip", 1, "dailies-1", "0.008000", "0.008000", false], ["spooled", 1, "sketch-1", "0.001500", "0.001500", false]]', '[]', '[]', 0);
INSERT INTO public.checks VALUES ('4c0cdf68af9675241cae83ab49425ea0b3c23705e3ebf6dd16dfd9e38c375b76', 1, 0, 'shots', '[]', NULL, 'ed6d914044bbec4e', '2026-11-28T04:26:05.956127Z');
INSERT INTO public.checks VALUES ('a3353ca34c2372f7a9c547ce16a4b32c2e0c9775dbd2c838716e14835b32cfa7', 1, 0, 'shots', '[]', NULL, 'fd3480684d877cf8', '2026-11-28T04:26:05.956127Z');
INSERT INTO public.checks VALUES ('aed9ee3a063c58d4fdd3c91014e5aca4c471723da218f103b9b78f17bc6a76a8', 1, 0, 'shots', '[]', NULL, 'b319d40765f86a27', '2026-11-28T04:26:05.956127Z');
INSERT INTO public.checks VALUES ('ba993c3dbd1ba9586cd2b357b71f149c96e1fc47219e442b7adec9782198f656', 1, 0, 'shots', '[]', NULL, NULL, '2026-11-28T04:26:05.956127Z');
INSERT INTO public.checks VALUES ('f7e380b613faeda052bd688cdf8ceecfdede83cfa4a3dfbae03ff4ae00713167', 1, 0, 'shots', '[]', NULL, 'd952b259598665f8', '2026-11-28T04:26:05.956127Z');
INSERT INTO public.learned VALUES ('http://127.0.0.1:34081', '{"lanes": 9, "latched": false, "windows": {"image": {"limit": 600, "sent": [[1795839966, 9], [1795839969, 1]]}, "video": {"limit": 120, "sent": [[1795839966, 1], [1795839969, 1]]}}}');
INSERT INTO public.marks VALUES (1, 'shots', 'f7e380b613faeda052bd688cdf8ceecfdede83cfa4a3dfbae03ff4ae00713167', 1, 0, 'kept', 'naïve ☂', 'ana', '2026-11-28T04:26:06.818060Z');
INSERT INTO public.marks VALUES (2, 'shots', 'a3353ca34c2372f7a9c547ce16a4b32c2e0c9775dbd2c838716e14835b32cfa7', 1, 0, 'kept', 'naïve ☂', 'ana', '2026-11-28T04:26:06.818060Z');
INSERT INTO public.marks VALUES (3, 'shots', 'aed9ee3a063c58d4fdd3c91014e5aca4c471723da218f103b9b78f17bc6a76a8', 1, 0, 'rejected', 'too dark', 'ana', '2026-11-28T04:26:07.320167Z');
INSERT INTO public.marks VALUES (4, 'shots', 'ba993c3dbd1ba9586cd2b357b71f149c96e1fc47219e442b7adec9782198f656', 1, 0, 'rejected', 'too dark', 'ana', '2026-11-28T04:26:07.320167Z');
INSERT INTO public.marks VALUES (5, 'shots', 'a3353ca34c2372f7a9c547ce16a4b32c2e0c9775dbd2c838716e14835b32cfa7', 1, 0, NULL, NULL, 'ana', '2026-11-28T04:26:07.831211Z');
INSERT INTO public.media VALUES ('4c0cdf68af9675241cae83ab49425ea0b3c23705e3ebf6dd16dfd9e38c375b76', 1, 0, 'media', 'shots/cup-1-0.jpeg', 'shots/cup-1-0.jpeg', 'http://127.0.0.1:34081/v2/downloads/req-5c75502c87694f3aae1a1368a43f05c8/0?exp=1795843565&sig=80540fd6ffca65957d06f317799b0f8cccc06f5b6b5271e7b3116e19666b2fe1', 'image/jpeg', 256, 256, NULL, NULL, NULL, '2026-11-28T05:26:05.000000Z', 'media/shots/cup-1-0.jpeg', '0d0022011ca739b9c7e52da5203c5c104738843548b993ee800a357a6198bdf0', 11415, '2026-11-28T04:26:05.062356Z', NULL);
INSERT INTO public.media VALUES ('a3353ca34c2372f7a9c547ce16a4b32c2e0c9775dbd2c838716e14835b32cfa7', 1, 0, 'media', 'shots/jug-1-0.jpeg', 'shots/jug-1-0.jpeg', 'http://127.0.0.1:34081/v2/downloads/req-9441d9b3b77948c494974bd26fed11da/0?exp=1795843565&sig=5a8ea09bdade90a5d294ff4220b0973b9d40eac8b2c9efb6b3086c38e66ea2bf', 'image/jpeg', 256, 256, NULL, NULL, NULL, '2026-11-28T05:26:05.000000Z', 'media/shots/jug-1-0.jpeg', 'a7dc1be67ea09ba9cd5af4698d8f01a163f8de8e78780c33daa0c3338489f02a', 10154, '2026-11-28T04:26:05.062342Z', NULL);
INSERT INTO public.media VALUES ('aed9ee3a063c58d4fdd3c91014e5aca4c471723da218f103b9b78f17bc6a76a8', 1, 0, 'media', 'shots/bowl-1-0.jpeg', 'shots/bowl-1-0.jpeg', 'http://127.0.0.1:34081/v2/downloads/req-e80cb56295cc47459436974d9efcef01/0?exp=1795843565&sig=5eb18616972d9bba66cbdd4313c303e11c3356ff0aac7c08c6cbc3066c4b1cb5', 'image/jpeg', 256, 256, NULL, NULL, NULL, '2026-11-28T05:26:05.000000Z', 'media/shots/bowl-1-0.jpeg', 'bdbdd9ab2d707debe1b4ec08895d8c3f66984a185b88c8c79b552623a286d541', 8900, '2026-11-28T04:26:05.062188Z', NULL);
INSERT INTO public.media VALUES ('ba993c3dbd1ba9586cd2b357b71f149c96e1fc47219e442b7adec9782198f656', 1, 0, 'media', 'shots/clip-1-0.mp4', 'shots/clip-1-0.mp4', 'http://127.0.0.1:34081/v2/downloads/req-2aedc265feec4108b9f619aaf2c3f518/0?exp=1795843566&sig=01dd54329eb18e4308496c37bc626d3740b1b94651eaf0acf274e16ad43c3b2b', 'video/mp4', 360, 640, 1, 24, false, '2026-11-28T05:26:06.000000Z', 'media/shots/clip-1-0.mp4', '9212c46c5447e7ca056bd374acc1d7f8f66ab0e09c0b75100bcbcdd97ba02e06', 75336, '2026-11-28T04:26:05.416144Z', NULL);
INSERT INTO public.media VALUES ('ebbbd3d617866e8b6f579a706ac584ddd9c28d7d31a18cc098e0cea969a08b6d', 1, 0, 'media', 'shots/lost-1-0.jpeg', 'shots/lost-1-0.jpeg', 'http://127.0.0.1:34081/v2/downloads/req-461e7ee4723a4b91bdd3838ba7d29745/0?exp=1795839963&sig=253090412cbc263271805cdbaa34923052a4dbd65a374603fdea076fb140a7ba', 'image/jpeg', 256, 256, NULL, NULL, NULL, '2026-11-28T04:26:03.000000Z', NULL, NULL, NULL, NULL, '2026-11-28T04:26:05.629913Z');
INSERT INTO public.media VALUES ('f011e1c37289aaf63ca1122d5df3623e3c69cfe2cfc233af7e5dc54f9fa293f2', 1, 0, 'media', 'shots/spooled-1-0.jpeg', 'shots/spooled-1-0.jpeg', 'http://127.0.0.1:34081/v2/downloads/req-1cb8bbf79cc54430acfe4a8d8d390fad/0?exp=1795843588&sig=f2613d21b0d4a4ae1a9d2c7f958e1fe1afac372c2851b060d008c3b51e986e55', 'image/jpeg', 256, 256, NULL, NULL, NULL, '2026-11-28T05:26:28.000000Z', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.media VALUES ('f7e380b613faeda052bd688cdf8ceecfdede83cfa4a3dfbae03ff4ae00713167', 1, 0, 'media', 'shots/vase-1-0.jpeg', 'shots/vase-1-0.jpeg', 'http://127.0.0.1:34081/v2/downloads/req-283aa5132d6948cfac0ad499040cc113/0?exp=1795843565&sig=b35c04ab953a03fd01005d097ef51b81447a349e5f2200626df5300e953a396d', 'image/jpeg', 256, 256, NULL, NULL, NULL, '2026-11-28T05:26:05.000000Z', 'media/shots/vase-1-0.jpeg', '2cbe95bc962025349778e1bacc4bf9a4b51a43ee2717b76e8722eb458c77eab9', 9915, '2026-11-28T04:26:05.101024Z', NULL);
INSERT INTO public.runs VALUES ('0545de0a-b52a-4956-97e6-32a05a2bf365', 'shots', 'studio', NULL, 18892, '5061426', '2026-11-28T04:26:24.832634Z', '2026-11-28T04:26:24.832634Z', NULL, 99978500, 17000, NULL, '01eef894581348fbb2a4f200e053aaa8', NULL, 6);
INSERT INTO public.runs VALUES ('244ad371-777e-475d-8d89-ad208c26d658', 'shots', 'studio', NULL, 17328, '5059401', '2026-11-28T04:26:04.502291Z', '2026-11-28T04:26:04.502291Z', '2026-11-28T04:26:06.068852Z', 100000000, 0, NULL, '2c0092226f8e4e6b83a88be7bc82f646', NULL, 1);
INSERT INTO public.runs VALUES ('2702b7a4-656e-43e5-aba4-73d6e0d95c3b', 'shots', 'studio', NULL, 17667, '5059776', '2026-11-28T04:26:08.504398Z', '2026-11-28T04:26:08.504398Z', '2026-11-28T04:26:24.373802Z', 99980000, 17000, NULL, '188e547a62454c418f4c7264d021ea74', NULL, 5);
INSERT INTO public.runs VALUES ('4e15f6ef-4361-4ab1-9bea-908cfb4e89b9', 'shots', 'studio', NULL, 17289, '5059322', '2026-11-28T04:26:03.930578Z', '2026-11-28T04:26:03.930578Z', '2026-11-28T04:26:04.208727Z', 100000000, 0, NULL, NULL, NULL, 1);
INSERT INTO public.settlements VALUES ('80ff007566bf2a112299d7c830f84ce2ed267b5ba9e8b50015ac0b3d513c7527', 1, true, 'ana', '2026-11-28T04:26:06.310944Z', 'seen on the invoice');
INSERT INTO public.settlements VALUES ('ae08a0640fcc1252ab7439070cc06748eed623fbd87a5fde29fe8dc744de2d25', 1, false, 'ana', '2026-11-28T04:26:06.548207Z', 'not on the invoice');
INSERT INTO public.totals VALUES ('shots', '', '01eef894581348fbb2a4f200e053aaa8', 1500, 1500, 0, 0, 0);
INSERT INTO public.totals VALUES ('shots', '', '188e547a62454c418f4c7264d021ea74', 0, 0, 0, 0, 0);
INSERT INTO public.totals VALUES ('shots', '', '2c0092226f8e4e6b83a88be7bc82f646', 0, 0, 0, 0, 0);
INSERT INTO public.totals VALUES ('shots', '2026-11-28', '01eef894581348fbb2a4f200e053aaa8', 3000, 0, 1500, 0, 1500);
INSERT INTO public.totals VALUES ('shots', '2026-11-28', '188e547a62454c418f4c7264d021ea74', 9500, 0, 8000, 1500, 0);
INSERT INTO public.totals VALUES ('shots', '2026-11-28', '2c0092226f8e4e6b83a88be7bc82f646', 20000, 0, 0, 1500, 17000);
ALTER TABLE ONLY public.about
    ADD CONSTRAINT about_pkey PRIMARY KEY (schema_version);
ALTER TABLE ONLY public.approvals
    ADD CONSTRAINT approvals_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.attempts
    ADD CONSTRAINT attempts_pkey PRIMARY KEY (job_key, attempt);
ALTER TABLE ONLY public.batches
    ADD CONSTRAINT batches_pkey PRIMARY KEY (batch);
ALTER TABLE ONLY public.changes
    ADD CONSTRAINT changes_pkey PRIMARY KEY (number);
ALTER TABLE ONLY public.charges
    ADD CONSTRAINT charges_pkey PRIMARY KEY (batch);
ALTER TABLE ONLY public.checks
    ADD CONSTRAINT checks_pkey PRIMARY KEY (job_key, attempt, index);
ALTER TABLE ONLY public.learned
    ADD CONSTRAINT learned_pkey PRIMARY KEY (service);
ALTER TABLE ONLY public.marks
    ADD CONSTRAINT marks_pkey PRIMARY KEY (number);
ALTER TABLE ONLY public.media
    ADD CONSTRAINT media_pkey PRIMARY KEY (job_key, attempt, index);
ALTER TABLE ONLY public.runs
    ADD CONSTRAINT runs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.settlements
    ADD CONSTRAINT settlements_pkey PRIMARY KEY (job_key, attempt);
ALTER TABLE ONLY public.totals
    ADD CONSTRAINT totals_pkey PRIMARY KEY (batch, day, approval);
CREATE INDEX attempts_by_generation ON public.attempts USING hash (generation_id);
CREATE INDEX attempts_by_state ON public.attempts USING btree (batch, state, superseded, run_id);
CREATE INDEX ix_approvals_batch ON public.approvals USING btree (batch);
CREATE INDEX ix_attempts_request_key ON public.attempts USING btree (request_key);
CREATE INDEX ix_attempts_submitted_at ON public.attempts USING btree (submitted_at);
CREATE INDEX ix_changes_batch ON public.changes USING btree (batch);
CREATE INDEX ix_checks_batch ON public.checks USING btree (batch);
CREATE INDEX ix_runs_batch ON public.runs USING btree (batch);
CREATE INDEX ix_totals_approval ON public.totals USING btree (approval);
CREATE INDEX marks_of_batch ON public.marks USING btree (batch, number);
CREATE INDEX marks_of_file ON public.marks USING btree (job_key, attempt, index, number);
CREATE UNIQUE INDEX media_by_folded_name ON public.media USING btree (storage, folded_name);
